"""Names of the columns of a snapshot, in the order of each array."""

from __future__ import annotations

from spotweave.envs.simulation import columns as col
from spotweave.envs.simulation.snapshot import N_CLUSTER_FIELDS, N_JOB_FIELDS, N_PAIR_FIELDS

_NAMES = [name for name in vars(col) if name.isupper()]

CLUSTERS = _NAMES[:N_CLUSTER_FIELDS]
JOBS = _NAMES[N_CLUSTER_FIELDS:-N_PAIR_FIELDS]
PAIRS = _NAMES[-N_PAIR_FIELDS:]

assert len(JOBS) == N_JOB_FIELDS
for _names in (CLUSTERS, JOBS, PAIRS):
    assert [getattr(col, name) for name in _names] == list(range(len(_names)))
