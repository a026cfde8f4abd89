"""Providers of instances: one module or package each, all behind `base.Provider`."""
