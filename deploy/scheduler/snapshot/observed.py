"""What a policy is shown of live tasks: a snapshot without lost deadlines, encoded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from deploy.scheduler.snapshot.needs import Need
from envs.simulation.guards.rules import GuardRules
from envs.simulation.guards.safety import hide_lost_deadline, soonest_s
from envs.simulation.snapshot import FloatArray, MaskArray, Observation, Snapshot, encode


class Row(NamedTuple):
    """What an observation shows of one task: clusters, its job and pairs, and its part of the mask."""

    clusters: FloatArray
    job: FloatArray
    pairs: FloatArray
    mask: MaskArray


@dataclass(frozen=True)
class Observed:
    """An observation of live tasks.

    Attributes:
        observation: of a window of tasks.
        lost: by row: why the task's deadline can be met nowhere any more; "" where it can.
    """

    observation: Observation
    lost: Sequence[str]

    def row(self, k: int) -> Row:
        """What it shows of its k-th task."""
        shown = self.observation
        n_places = shown["clusters"].shape[0] + 1
        mask = shown["action_mask"][k * n_places : (k + 1) * n_places]
        return Row(shown["clusters"], shown["jobs"][k], shown["pairs"][k], mask)


def observe(snapshot: Snapshot, needs: Sequence[Need], window: int, rules: GuardRules) -> Observed:
    """Encode a snapshot of some needs, in their order, as policies see it.

    A deadline that nothing can meet any more is not shown (see `guards.safety`); the snapshot is changed.
    """
    lost = []
    for k, need in enumerate(needs[:window]):
        words = ""
        if hide_lost_deadline(snapshot.clusters, snapshot.jobs[k], snapshot.pairs[k], rules):
            allowed_s, least_s = need.allowed_s, soonest_s(snapshot.clusters, snapshot.pairs[k])
            when = f"is in {allowed_s:.0f} s" if allowed_s >= 0 else f"was {-allowed_s:.0f} s ago"
            words = f"the deadline {when} and what is left takes {least_s:.0f} s at best"
        lost.append(words)
    return Observed(encode(snapshot, window), lost)
