"""The leaderboard entries decide as the policy does: both play the same jobs, each by its own simulator."""

from __future__ import annotations

import enum
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from spotweave.agents.spot.model import SpotModel
from spotweave.agents.spot.policy import SpotPolicy
from spotweave.envs.simulation.spot.lanes import SpotJob
from spotweave.envs.simulation.spot.ticks import NONE, ON_DEMAND, SPOT, decide, settle
from spotweave.envs.simulation.world import EpisodeKey
from spotweave.envs.spot_episodes import RecordedJobs, RulesName, SpotConfig
from spotweave.envs.traces.bundle import load_bundle
from spotweave.training.studies.spot.__main__ import app
from spotweave.training.studies.spot.entries import entry_text, write_entries
from tests.spot_cases import KEY, random_model, world_of


class ClusterType(enum.Enum):
    NONE = "NONE"
    SPOT = "SPOT"
    ON_DEMAND = "ON_DEMAND"


KINDS = {NONE: ClusterType.NONE, SPOT: ClusterType.SPOT, ON_DEMAND: ClusterType.ON_DEMAND}
CODES = {kind: code for code, kind in KINDS.items()}


class Strategy:
    """What the leaderboard's base classes offer to a strategy."""

    def __init__(self, args: object) -> None:
        self.args = args


class FakeEnv:
    """The part of the leaderboard's environment that an entry may ask."""

    def __init__(self, job: SpotJob) -> None:
        self.job, self.tick, self.region = job, 0, 0

    @property
    def elapsed_seconds(self) -> float:
        return float(self.tick * self.job.tick_s)

    @property
    def gap_seconds(self) -> float:
        return float(self.job.tick_s)

    def get_all_regions_spot_available(self) -> list[bool]:
        return [bool(up) for up in self.job.has_spot[self.tick]]

    def get_all_regions_spot_prices(self) -> list[float | None]:
        row = zip(self.job.has_spot[self.tick], self.job.spot_usd_hour[self.tick], strict=True)
        return [float(usd) if up else None for up, usd in row]

    def switch_region(self, region: int) -> bool:
        self.region = region
        return True


def strategy_of(source: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The strategy class of an entry, imported next to a stand-in for the simulator's package."""
    contents: dict[str, dict[str, Any]] = {
        "sky_spot": {},
        "sky_spot.strategies": {},
        "sky_spot.strategies.strategy": {"Strategy": Strategy},
        "sky_spot.strategies.multi_strategy": {"MultiRegionStrategy": Strategy},
        "sky_spot.utils": {"ClusterType": ClusterType},
    }
    for name, content in contents.items():
        module = ModuleType(name)
        vars(module).update(content)
        monkeypatch.setitem(sys.modules, name, module)
    names: dict[str, Any] = {"__name__": "entry", "__file__": "entry.py"}
    exec(compile(source, "entry.py", "exec"), names)
    (found,) = [
        one
        for one in names.values()
        if isinstance(one, type) and issubclass(one, Strategy) and one is not Strategy
    ]
    return found


def places_of_entry(strategy: Any, job: SpotJob) -> tuple[list[int], int]:
    """(where each tick ran: zone, Z for on demand, -1 for none; work left) by the fake simulator."""
    env = FakeEnv(job)
    strategy.env = env
    strategy.task_duration, strategy.deadline = float(job.work_s), float(job.deadline_s)
    strategy.restart_overhead, strategy.task_done_time = float(job.restart_s), []
    ran, rem_s, left_s = NONE, 0, job.work_s
    places = []
    for tick in range(job.n_ticks):
        env.tick = tick
        has_spot = bool(job.has_spot[tick, env.region])
        strategy.remaining_restart_overhead = float(rem_s)
        asked = CODES[strategy._step(KINDS[ran], has_spot)]
        parked = bool(job.has_spot[tick, env.region])
        interrupted = ran == SPOT and not has_spot
        ticks_left = job.n_ticks - tick
        ran, rem_s = decide(
            asked, ran, interrupted, parked, rem_s, left_s, ticks_left, job.tick_s, job.restart_s
        )
        places.append({NONE: -1, SPOT: env.region, ON_DEMAND: job.has_spot.shape[1]}[ran])
        before_s = left_s
        rem_s, left_s = settle(ran, rem_s, left_s, job.tick_s)
        strategy.task_done_time.append(float(before_s - left_s))
        if left_s == 0:
            break
    return places, left_s


def places_of_policy(model: SpotModel, job: SpotJob) -> list[int]:
    """The same by the policy in the world."""
    world, policy = world_of(job), SpotPolicy(model, "spot_values")
    world.reset([KEY])
    done = False
    while not done:
        action = policy.act_batch(world.observation, np.zeros(1, np.int64))
        done = bool(world.step(action)[1][0])
    return [int(place) for place in world.lanes.history[0, : world.lanes.tick[0]]]


@pytest.mark.parametrize(("kind", "rules"), [("single", "adrs_single"), ("multi", "adrs_multi")])
def test_an_entry_decides_as_the_policy(kind: str, rules: RulesName, monkeypatch: pytest.MonkeyPatch) -> None:
    config = SpotConfig(rules=rules, work_h=8.0, deadline_h=10.0)
    source = RecordedJobs(config, load_bundle())
    for seed in range(4):
        job = source.job(EpisodeKey(1, "train", seed))
        model = random_model(np.random.default_rng(seed), job.tick_s, job.restart_s)
        made = strategy_of(entry_text(kind, model), monkeypatch)(SimpleNamespace())
        places, left_s = places_of_entry(made, job)
        assert left_s == 0
        assert places == places_of_policy(model, job)


@pytest.mark.parametrize(("kind", "rules"), [("single", "adrs_single"), ("multi", "adrs_multi")])
def test_the_entry_of_a_released_policy_is_never_late(
    kind: str, rules: RulesName, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_entries({kind: f"spot/{kind}"}, tmp_path)
    source = RecordedJobs(SpotConfig(rules=rules), load_bundle())
    made = strategy_of((tmp_path / f"{kind}.py").read_text("utf-8"), monkeypatch)(SimpleNamespace())
    assert places_of_entry(made, source.job(EpisodeKey(0, "validation", 0)))[1] == 0


# `python -m spotweave.training.studies.spot`: a mistake is one line.


@pytest.mark.parametrize("command", ["measure", "entries"])
def test_a_checkpoint_that_is_none_is_one_line(command: str, tmp_path: Path) -> None:
    told = CliRunner().invoke(app, [command, "--multi", "nothing/here", "--out", str(tmp_path)])
    assert told.exit_code == 2
    assert told.stderr.startswith("error: ")
    assert "nothing/here" in told.stderr
    assert told.stderr.count("\n") == 1
    assert not list(tmp_path.glob("*.md"))
