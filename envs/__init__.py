"""The worlds: the simulation core, recorded traces and the registered Gymnasium environments."""
