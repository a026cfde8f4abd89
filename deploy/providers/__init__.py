"""Where instances come from: one module or package for each provider, all behind `base.Provider`."""
