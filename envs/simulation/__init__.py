"""The simulation core: numpy and numba only (no gymnasium, no torch)."""
