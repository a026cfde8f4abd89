"""Commands and loops that train, evaluate and compare policies."""
