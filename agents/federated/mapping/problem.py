"""The initial mapping's data with its symmetry removed: equal clients are one group, a plan counts them.

Fifty equal clients on three VM types can be permuted in astronomically many ways that are all the same plan.
Counting how many of a group are on a type leaves one. The server is the last row of such counts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from spotweave.envs.simulation.federations.model import Federation, Outcome, Placement
from spotweave.envs.simulation.series import Floats, Ints

TOLERANCE = 1e-11  # objectives (which are about 0 to 1) that differ by less are equal

Counts = Ints  # [G + 1, V] how many of each group are on each type; the last row is the server's


@dataclass(frozen=True)
class Quota:
    """A limit on what runs at once (Eq. 6.13-6.16)."""

    owner: str  # e.g. "provider 'GCP'"
    what: str  # "GPUs" or "vCPUs"
    limit: int  # how many may be rented
    amounts: Floats  # [V] how many one VM of each type counts


@dataclass(frozen=True)
class RoundLimits:
    """Deadline and budget of one round (T_round, B_round); infinite for none."""

    seconds: float = math.inf
    usd: float = math.inf

    def allow(self, round_s: float, round_usd: float) -> bool:
        """Whether a round of this many seconds and USD keeps both, but for rounding errors."""
        return round_s <= self.seconds * (1 + 1e-12) and round_usd <= self.usd * (1 + 1e-12)


class MappingProblem:
    """One federation, one weight, the limits of a round. G groups of equal clients, V types, Q quotas.

    Attributes:
        groups: clients of each group.
        sizes: [G + 1] how many they are, and 1 for the server.
        exec_s: [G, V] seconds of a round's computation; inf where they cannot run.
        quotas: those that are finite.
        amounts: [Q, V] what one VM of each type takes of each quota.
        limits: [Q].
        servers: [V] types that the server can be on.
    """

    def __init__(self, federation: Federation, alpha: float, limits: RoundLimits | None = None) -> None:
        self.federation = federation
        self.alpha = alpha
        self.round_limits = limits or RoundLimits()
        members: dict[tuple[str, float], list[int]] = {}
        for k, client in enumerate(federation.application.clients):
            members.setdefault((client.data_region, client.baseline_s), []).append(k)
        self.groups = tuple(tuple(group) for group in members.values())
        self.sizes = np.array([*(len(group) for group in self.groups), 1])
        self.exec_s = federation.exec_s[[group[0] for group in self.groups]]
        self.quotas = _quotas(federation)
        types = len(federation.clouds.vm_types)
        self.amounts = np.array([quota.amounts for quota in self.quotas]).reshape(len(self.quotas), types)
        self.limits = np.array([quota.limit for quota in self.quotas], float)
        self.servers = np.isfinite(federation.server_usd_s)

    def objective(self, usd: float, seconds: float) -> float:
        """Eq. 6.3 with both parts normalised by Eq. 6.8."""
        federation = self.federation
        return float(self.alpha * usd / federation.cost_max + (1 - self.alpha) * seconds / federation.t_max)

    def fits(self, counts: Counts) -> bool:
        """Whether the counts keep all quotas."""
        return bool((self.amounts @ counts.sum(axis=0) <= self.limits).all())

    def placement(self, counts: Counts) -> Placement:
        """The placement in which each group's first clients are on its first types."""
        chosen = [0] * len(self.federation.application.clients)
        for group, row in zip(self.groups, counts, strict=False):
            types = np.repeat(np.arange(len(row)), row)
            for client, vm_type in zip(group, types, strict=True):
                chosen[client] = int(vm_type)
        return Placement(int(counts[-1].argmax()), tuple(chosen))

    @cached_property
    def dominators(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """For clients and for the server: [V, V] 1 where the second type can replace the first.

        It is in the same region, so that messages cost and last the same, is no dearer and takes no more of
        any quota; whether it is fast enough depends on the client. Of equal types the first replaces all.
        """
        federation = self.federation
        same = federation.region[:, None] == federation.region
        for amounts in self.amounts:
            same &= amounts[None, :] <= amounts[:, None]
        n = len(same)
        first = np.arange(n)[None, :] < np.arange(n)[:, None]
        tables = []
        for rate in (federation.client_usd_s, federation.server_usd_s):
            better = same & (rate[None, :] <= rate[:, None])
            tables.append(np.asarray(better & (~(better & better.T) | first), np.float32))
        return tables[0], tables[1]


def _quotas(federation: Federation) -> tuple[Quota, ...]:
    clouds = federation.clouds
    owners: list[tuple[str, int | None, int | None, Sequence[bool]]] = [
        (f"provider {item.name!r}", item.max_gpus, item.max_vcpus, (federation.provider == k).tolist())
        for k, item in enumerate(clouds.providers)
    ]
    owners += [
        (f"region {item.name!r}", item.max_gpus, item.max_vcpus, (federation.region == k).tolist())
        for k, item in enumerate(clouds.regions)
    ]
    quotas = []
    for owner, max_gpus, max_vcpus, inside in owners:
        for what, limit, each in (
            ("GPUs", max_gpus, federation.gpus),
            ("vCPUs", max_vcpus, federation.vcpus),
        ):
            if limit is not None:
                quotas.append(Quota(owner, what, limit, np.where(inside, each, 0).astype(float)))
    return tuple(quotas)


@dataclass(frozen=True)
class Candidate:
    """A placement that keeps every limit."""

    # how many of each group are where; equal for placements that differ by an exchange of equal clients only
    counts: Counts
    placement: Placement  # one of those
    outcome: Outcome  # what it gives

    def better_than(self, other: Candidate | None) -> bool:
        """A smaller objective; where they are equal, the cheaper one, then the faster one."""
        if other is None:
            return True
        mine, theirs = self.outcome, other.outcome
        if abs(mine.objective - theirs.objective) > TOLERANCE:
            return mine.objective < theirs.objective
        if not math.isclose(mine.round_usd, theirs.round_usd, rel_tol=1e-12):
            return mine.round_usd < theirs.round_usd
        return mine.round_s < theirs.round_s
