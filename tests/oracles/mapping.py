"""Every placement of the tasks of federated learning, one by one: exact, for small cases."""

from __future__ import annotations

from itertools import combinations_with_replacement

import numpy as np

from spotweave.agents.federated.mapping.problem import Candidate, MappingProblem
from spotweave.envs.simulation.series import Bools, Ints


def enumerate_placements(problem: MappingProblem, best: int | None = None) -> list[Candidate]:
    """The `best` placements, or all, that keep every limit, best first; of equals the cheaper one."""
    federation = problem.federation
    # [choices, V] counts of each group on each type; `index` combines the choices of all groups
    per_group = [
        _choices(size, np.isfinite(row))
        for size, row in zip(problem.sizes.tolist(), problem.exec_s, strict=False)
    ]
    grid = np.meshgrid(*[np.arange(len(choices)) for choices in per_group], indexing="ij")
    index = [axis.ravel() for axis in grid]
    total = sum((choices[rows] for choices, rows in zip(per_group, index, strict=True)), np.array(0))
    rate = total @ np.where(np.isfinite(federation.client_usd_s), federation.client_usd_s, 0.0)
    used = total @ problem.amounts.T
    found: list[tuple[float, float, int, int]] = []
    for server in np.flatnonzero(problem.servers).tolist():
        along = federation.comm_s[federation.region, federation.region[server]]
        seconds = np.zeros(len(total))
        for g, (choices, rows) in enumerate(zip(per_group, index, strict=True)):
            reach = np.where(
                choices > 0, problem.exec_s[g] + (along + federation.aggregation_s[server]), -np.inf
            )
            np.maximum(seconds, reach.max(axis=1)[rows], out=seconds)
        messages = total @ federation.message_usd[federation.provider, federation.provider[server]]
        usd = (rate + federation.server_usd_s[server]) * seconds + messages
        limits = problem.round_limits
        good = (seconds <= limits.seconds * (1 + 1e-12)) & (usd <= limits.usd * (1 + 1e-12))
        good &= (used + problem.amounts[:, server] <= problem.limits).all(axis=1)
        objective = (
            problem.alpha * usd / federation.cost_max + (1 - problem.alpha) * seconds / federation.t_max
        )
        where = np.flatnonzero(good)
        order = where[np.lexsort((usd[where], objective[where]))[:best]]
        found += [(float(objective[k]), float(usd[k]), int(server), int(k)) for k in order]
    candidates = []
    for _, _, server, k in sorted(found)[:best]:
        counts = np.array([choices[rows[k]] for choices, rows in zip(per_group, index, strict=True)])
        row = np.zeros((1, counts.shape[1]), np.int64)
        row[0, server] = 1
        counts = np.concatenate([counts, row])
        placement = problem.placement(counts)
        candidates.append(Candidate(counts, placement, federation.outcome(placement, problem.alpha)))
    return candidates


def _choices(size: int, usable: Bools) -> Ints:
    """[choices, V] every way to put `size` equal clients on the usable types."""
    types = np.flatnonzero(usable)
    ways = list(combinations_with_replacement(range(len(types)), size))
    counts = np.zeros((len(ways), len(usable)), np.int64)
    for row, way in enumerate(ways):
        np.add.at(counts[row], types[list(way)], 1)
    return counts
