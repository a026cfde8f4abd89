"""Uniform Progress over several zones: the three variants that SkyNomad is compared with.

When to run, and on what, is Uniform Progress (Wu et al., "Can't Be Late", NSDI'24); a variant says which
zone's spot it takes. Source: Li et al., "SkyNomad" (NSDI'27, arXiv 2601.06520), baselines UP(S), UP(A) and
UP(AP), with the constants of its published artifact (andylizf/skynomad-artifact). There a probe is a paid
launch; here the availability of every zone can be read, so a probe is a free look at the same interval.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from spotweave.agents.policy import Policy
from spotweave.agents.rules import make_rule
from spotweave.envs.simulation import columns as col
from spotweave.envs.simulation.series import Bools, Floats, Ints
from spotweave.envs.simulation.snapshot import Observation, take_rows

NEUTRAL = 0.5  # success rate of a zone that was never probed


@dataclass(frozen=True)
class Looks:
    """Zones by their share of successful looks."""

    latest: int | None  # looks that count; None: all
    every_s: float  # seconds between two looks at a zone
    per_price: bool  # whether the share is divided by the price
    keeps: float  # a job on spot leaves its zone when its score is below this share of the best zone's


VARIANTS: dict[str, Looks | None] = {
    "UP(S)": None,
    "UP(A)": Looks(latest=5, every_s=7200.0, per_price=False, keeps=1.0),
    "UP(AP)": Looks(latest=None, every_s=3600.0, per_price=True, keeps=0.9),
}
"""UP(S) looks at prices only, and takes the region where the job ran last after all others (as SkyPilot)."""


@dataclass
class _Lane:
    """What is remembered of an episode: looks and times of the next ones by zone, the zone of the job."""

    looks: list[list[bool]]
    next_s: Floats
    zone: int = -1
    interruptions: int = 0


class RankedUniformProgress(Policy):
    """Uniform Progress that is shown the spot of one zone only: the best one that has some.

    Args:
        variant: a key of `VARIANTS`.
    """

    def __init__(self, variant: str) -> None:
        self.name = variant
        self.by_looks = VARIANTS[variant]
        self._rule = make_rule("uniform_progress")
        self._lanes: dict[int, _Lane] = {}

    def begin(self, lane: int, seed: int) -> None:
        """Start an episode in a lane: forget its zones."""
        self._lanes.pop(lane, None)
        self._rule.begin(lane, seed)

    def act_batch(self, observations: Observation, lanes: Ints) -> Ints:
        """(n,) flat actions for observations with a leading axis of n."""
        rows = [
            self._decide(lane, take_rows(observations, np.array([row])))
            for row, lane in enumerate(lanes.tolist())
        ]
        return np.array(rows, np.int64)

    def _decide(self, lane: int, seen: Observation) -> int:
        clusters, job = seen["clusters"][0, :-1], seen["jobs"][0, 0]
        up = clusters[:, col.AVAILABLE] > 0
        n_zones = len(clusters)
        known = self._lanes.get(lane)
        if known is None or job[col.AGE_S] == 0.0:
            known = self._lanes[lane] = _Lane([[] for _ in range(n_zones)], np.zeros(n_zones))
        self._look(known, float(job[col.AGE_S]), int(job[col.INTERRUPTIONS]), up)
        scores = self._scores(known, clusters.astype(np.float64))
        order = np.argsort(-scores, kind="stable")
        best = next((int(z) for z in order if up[z]), -1)
        here = np.flatnonzero(seen["pairs"][0, 0, :-1, col.HERE])
        if len(here):  # on spot: it stays, or moves to a better zone
            known.zone = int(here[0])
            if self.by_looks and best >= 0 and scores[here[0]] < self.by_looks.keeps * scores.max():
                known.zone = best
            return known.zone if known.zone != here[0] else n_zones + 1
        seen["action_mask"][0, :n_zones] &= np.arange(n_zones) == best
        action = int(self._rule.act_batch(seen, np.array([lane]))[0])
        if action < n_zones:
            known.zone = action
            for z in order[: int(np.flatnonzero(order == action)[0]) + 1]:
                known.looks[z].append(bool(up[z]))  # each zone that was tried in vain, and the last one
        return action

    def _look(self, known: _Lane, age_s: float, interruptions: int, up: Bools) -> None:
        if interruptions > known.interruptions:
            known.interruptions = interruptions
            known.looks[known.zone].append(False)
        every_s = np.inf if self.by_looks is None else self.by_looks.every_s
        for z in np.flatnonzero(known.next_s <= age_s):
            known.looks[z].append(bool(up[z]))
            known.next_s[z] = age_s + every_s

    def _scores(self, known: _Lane, clusters: Floats) -> Floats:
        """(Z,) the higher, the sooner a zone is taken."""
        price = clusters[:, col.PRICE_USD_HOUR]
        if self.by_looks is None:
            regions = clusters[:, col.REGION]
            avoided = regions == regions[known.zone] if known.zone >= 0 else np.zeros(len(regions), bool)
            return np.where(avoided, -1e6, 0.0) - price
        latest = self.by_looks.latest
        counted = [looks if latest is None else looks[-latest:] for looks in known.looks]
        rates = np.array([np.mean(looks) if looks else NEUTRAL for looks in counted])
        return rates / price if self.by_looks.per_price else rates
