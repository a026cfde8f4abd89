"""Episodes of workflows on spot offers: random graphs of published families, recorded markets."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from spotweave.envs.documents.workflows import workflow_of_instance
from spotweave.envs.market_data import ALWAYS, FREE, owned_offers, recorded_market
from spotweave.envs.simulation.availability import generate_availability
from spotweave.envs.simulation.market.config import MarketConfig, OfferConfig
from spotweave.envs.simulation.series import StepSeries
from spotweave.envs.simulation.snapshot import REFERENCE_HETERO
from spotweave.envs.simulation.streams import SPLITS, Streams, episode_sequence
from spotweave.envs.simulation.workflows.families import FAMILIES, family_workflow, scaled
from spotweave.envs.simulation.workflows.model import Cluster, Link, Platform, Stays, Workflow, WorkflowError
from spotweave.envs.simulation.workflows.options import WEEK_S, Case, Conditions, Quotes, Reserve, on_demand_s
from spotweave.envs.simulation.workflows.problem import problem_of, require_runnable
from spotweave.envs.simulation.workflows.world import WorkflowWorld
from spotweave.envs.simulation.world import EpisodeKey, WorldError, at_least, shares

OWNED_REGIONS = ("us-east-1", "us-west-2")
RUN_S, RATIO, FACTOR = (300.0, 1200.0), (0.005, 0.1), (1.5, 4.0)
"""Bounds of what is drawn (log-uniformly): mean run time, communication to computation, deadline."""
OWNED_HETERO = 35, 70
RECENT_CASES = 64
PRIVATE_SHARE = 0.3


@dataclass
class WorkflowsConfig:
    """What `spotweave/Workflows-v0` simulates."""

    family: str = ""  # one of the nine families of random graphs; empty: drawn
    instance: str = ""  # a recorded workflow in WfFormat (JSON), carried out in every episode instead
    steps: int = 50  # about how many a random graph has
    mean_run_s: float | None = None  # mean seconds of a step on an instance of reference speed; None: drawn
    ratio: float | None = None  # of moving a file to running a step; None: drawn
    # of the time that the workflow takes on demand; None: drawn. No deadline is earlier than what on demand
    # certainly keeps.
    deadline_factor: float | None = None
    private_share: float | None = None  # of the given files that may not leave their region; None: 0 or 0.3
    owned_executors: int = 1  # of each of the two owned clusters; 0: there are none
    spot_quota: int = 4  # most instances of a spot offer
    # clouds whose recorded offers there are: "aws", "gcp"
    providers: list[str] = field(default_factory=lambda: ["aws"])
    offers: list[str] = field(default_factory=list)  # names of the only ones; empty: all

    def validate(self) -> None:
        """Raises WorldError for a configuration that makes no sense."""
        if self.family and self.family not in FAMILIES:
            raise WorldError(
                f"env.family is {self.family!r}: expected one of {', '.join(FAMILIES)}, or empty"
            )
        if self.family and self.instance:
            raise WorldError(f"env.family is {self.family!r} beside env.instance: expected one of the two")
        if not 10 <= self.steps <= 500:
            raise WorldError(f"env.steps is {self.steps}: expected 10 to 500")
        for name in ("mean_run_s", "ratio", "deadline_factor"):
            value = getattr(self, name)
            if value is not None and not 0 < value < math.inf:
                raise WorldError(f"env.{name} is {value}: expected a number > 0")
        if self.private_share is not None:
            shares(self, "env", "private_share")
        at_least(self, "env", 0, "owned_executors")

    @property
    def market(self) -> MarketConfig:
        """The rented offers; on demand has an instance for every step."""
        return MarketConfig(
            providers=list(self.providers),
            offers=list(self.offers),
            owned_executors=0,
            spot_quota=self.spot_quota,
            on_demand_quota=10_000,
        )


class DrawnWorkflows:
    """Workflows on the recorded offers. A `CaseSource`.

    Raises:
        WorldError: for a configuration that makes no sense.
    """

    def __init__(self, config: WorkflowsConfig) -> None:
        config.validate()
        market = config.market
        market.validate()
        self.config, self.conditions = config, Conditions()
        self._data = recorded_market(market)
        if not any(offer.market == "on_demand" for offer in self._data.offers):
            raise WorldError("env.offers has no on-demand offer: expected one at least, to keep deadlines")
        regions = [region for region in OWNED_REGIONS if region in self._data.regions]
        owned = [
            offer
            for region in regions
            for offer in owned_offers(config.owned_executors, region, int(REFERENCE_HETERO))
        ]
        self._owned = len(owned)
        self.offers = (*owned, *self._data.offers)
        self._recorded = _recorded(config.instance) if config.instance else None
        self._recent: dict[EpisodeKey, Case] = {}

    def case(self, key: EpisodeKey) -> Case:
        """The case of an episode."""
        if key not in self._recent:
            self._recent[key] = self._case(key)
            if len(self._recent) > RECENT_CASES:
                del self._recent[next(iter(self._recent))]
        return self._recent[key]

    def __getstate__(self) -> dict[str, Any]:
        """Without the recent cases: they are drawn again."""
        return {**self.__dict__, "_recent": {}}

    def _case(self, key: EpisodeKey) -> Case:
        streams = Streams(episode_sequence(key.seed, key.split, key.index))
        sizes, window = streams.generator("job_sizes"), streams.generator("window")
        regions = self._data.regions
        homes = sorted({offer.region for offer in self._data.offers if offer.market == "on_demand"})
        home = homes[int(window.integers(len(homes)))]
        factor = self._drawn("deadline_factor", FACTOR, window)
        offers = self._drawn_offers(streams)
        platform = Platform(
            tuple(
                Cluster(one.name, one.quota, one.hetero_factor / REFERENCE_HETERO, region=one.region)
                for one in offers
            ),
            Link(self.conditions.gb_s, self.conditions.latency_s),
        )
        workflow = self._drawn_workflow(platform, home, sizes)
        require_runnable(workflow, platform)
        actual = 1 + sizes.uniform(-1, 1, len(workflow.steps)) * self.conditions.runtime_error
        case = Case(
            workflow,
            offers,
            regions,
            problem_of(workflow, platform),
            actual,
            self._data.egress_usd_gb,
            (),
            self.conditions,
        )
        deadline_s = max(Reserve(case).least_s, factor * on_demand_s(case))
        quotes = self._quotes(key, streams, window, math.ceil(2 * deadline_s))
        return replace(case, workflow=replace(workflow, deadline_s=deadline_s), quotes=quotes)

    def _drawn(self, name: str, bounds: tuple[float, float], random: np.random.Generator) -> float:
        """What the configuration says, or a draw, which is taken in any case."""
        drawn = math.exp(random.uniform(math.log(bounds[0]), math.log(bounds[1])))
        given = getattr(self.config, name)
        return drawn if given is None else float(given)

    def _drawn_offers(self, streams: Streams) -> tuple[OfferConfig, ...]:
        """The places with the speeds and launch times of an episode."""
        launches = streams.generator("launches")
        return tuple(
            replace(offer, hetero_factor=int(launches.integers(OWNED_HETERO[0], OWNED_HETERO[1] + 1)))
            if offer.market == "owned"
            else replace(offer, launch_s=round(offer.launch_s * launches.uniform(0.5, 1.5)))
            for offer in self.offers
        )

    def _drawn_workflow(self, platform: Platform, home: str, random: np.random.Generator) -> Workflow:
        """Files that are given lie in the home region, some of them for good."""
        at = next(cluster.name for cluster in platform.clusters if cluster.region == home)
        mean_run_s = self._drawn("mean_run_s", RUN_S, random)
        ratio = self._drawn("ratio", RATIO, random)
        family = tuple(FAMILIES)[int(random.integers(len(FAMILIES)))]
        if self._recorded is None:
            drawn = family_workflow(self.config.family or family, self.config.steps, random, (at,))
            drawn = scaled(drawn, platform, mean_run_s, ratio)
        else:
            given = [replace(file, at=(at,)) if file.at else file for file in self._recorded.files]
            drawn = replace(self._recorded, files=tuple(given))
        share = PRIVATE_SHARE * bool(random.random() < 0.5)
        if self.config.private_share is not None:
            share = self.config.private_share
        private = random.random(len(drawn.files)) < share
        files = tuple(
            replace(file, stays=Stays.REGION) if file.at and stays else file
            for file, stays in zip(drawn.files, private, strict=True)
        )
        return replace(drawn, files=files)

    def _quotes(
        self, key: EpisodeKey, streams: Streams, window: np.random.Generator, horizon_s: int
    ) -> tuple[Quotes, ...]:
        """Prices and availability from a moment of the split on, with up to a week before it."""
        data = self._data
        first_s, last_s = data.splits[key.split]
        start_s = first_s + int(window.random() * max(0, last_s - first_s - horizon_s))
        past_s = min(int(WEEK_S), start_s - first_s)
        drawn = {}
        missing = [c for c, series in enumerate(data.availability) if series is None]
        if missing and data.spells is not None:
            places = [data.offers[c].region for c in missing]
            random = streams.generator("availability")
            series = generate_availability(random, places, past_s + horizon_s, data.spells)
            drawn = dict(zip(missing, series, strict=True))
        found = [Quotes(FREE, ALWAYS) for _ in range(self._owned)]
        for c in range(len(data.offers)):
            price = _moved(data.price_usd_hour[c].window(start_s, start_s + horizon_s), 0)
            recorded = data.availability[c]
            up = drawn[c] if recorded is None else recorded.window(start_s - past_s, start_s + horizon_s)
            found.append(Quotes(price, _moved(up, -past_s)))
        return tuple(found)


def _moved(series: StepSeries, by_s: int) -> StepSeries:
    return StepSeries(series.times_s + by_s, series.values)


def _recorded(path: str) -> Workflow:
    """A recorded workflow whose given files lie at a place named "home"."""
    try:
        return workflow_of_instance(json.loads(Path(path).read_text(encoding="utf-8")), "home")
    except (OSError, ValueError) as error:
        raise WorldError(f"env.instance is {path!r}: {error}") from error


def build_workflows(config: WorkflowsConfig, n_lanes: int = 1, record: bool = False) -> WorkflowWorld:
    """A world of `n_lanes` copies; each keeps a timeline.

    Raises:
        WorldError: for a configuration that makes no sense, in one line.
    """
    source = DrawnWorkflows(config)
    try:
        for split in SPLITS:
            source.case(EpisodeKey(0, split, 0))  # what cannot be played is said at once
    except WorkflowError as error:
        raise WorldError(str(error)) from error
    return WorkflowWorld(source, n_lanes)
