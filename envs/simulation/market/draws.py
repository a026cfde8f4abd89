"""Counter-based random draws inside compiled code: a pure function of (stream key, job, attempt, purpose).

Nothing is consumed, so no draw depends on which other draws a policy caused before (splitmix64: Steele, Lea
and Flood 2014, "Fast splittable pseudorandom number generators").
"""

from __future__ import annotations

import numpy as np

from envs.simulation.market.compiled import inner

LATENCY = 0
FAILURE = 1
NOTICE = 2
EPOCH = 3

_JOB = np.uint64(0x9E3779B97F4A7C15)
_ATTEMPT = np.uint64(0xC2B2AE3D27D4EB4F)
_PURPOSE = np.uint64(0x165667B19E3779F9)
_MIX_A = np.uint64(0xBF58476D1CE4E5B9)
_MIX_B = np.uint64(0x94D049BB133111EB)
_S30 = np.uint64(30)
_S27 = np.uint64(27)
_S31 = np.uint64(31)
_S11 = np.uint64(11)


@inner
def uniform(key: np.uint64, job: int, attempt: int, purpose: int) -> float:
    """A number in [0, 1) that belongs to this attempt of this job and to nothing else.

    Args:
        key: stream key (`Streams.key`).
        job: job number.
        attempt: launch attempt of the job, from 1 (EPOCH: round, from 1).
        purpose: LATENCY, FAILURE, NOTICE or EPOCH.
    """
    x = key + np.uint64(job + 1) * _JOB + np.uint64(attempt) * _ATTEMPT + np.uint64(purpose + 1) * _PURPOSE
    x = (x ^ (x >> _S30)) * _MIX_A
    x = (x ^ (x >> _S27)) * _MIX_B
    x = x ^ (x >> _S31)
    return float(x >> _S11) * (1.0 / 9007199254740992.0)
