"""The simulation core: numpy and numba only (no gymnasium, no torch)."""

from spotweave.envs.simulation.compiled import use_versioned_cache

use_versioned_cache()
