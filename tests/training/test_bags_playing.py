"""Policies that carry out bags: in the worlds of the schedulers, in the command, and in our table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from agents.bags.cost import BagCost
from envs.simulation.bags.outcome import Outcome
from envs.simulation.bags.rented import VmState
from envs.simulation.bags.scenarios import SCENARIOS
from tests.training.federated.commands import printed, table
from tests.training.test_bags import map_file
from training.bags import OnePlan, execute, play, unplanned
from training.studies.bags import table_ours
from training.studies.bags.chapter_7 import ENVIRONMENT, starting_plan

__all__ = ["map_file"]


def hibernated_s(outcome: Outcome) -> set[tuple[str, float]]:
    """(VM type, second) of the hibernations of the first 600 s."""
    return {
        (vm.vm_type.name, span.start_s)
        for vm, spans in zip(outcome.vms, outcome.states, strict=True)
        for span in spans
        if span.state == VmState.HIBERNATED and span.start_s < 600
    }


def test_a_policy_meets_the_worlds_of_the_schedulers() -> None:
    plan, scenario = starting_plan("J60"), SCENARIOS["sc_2"]
    hads = execute(plan, ENVIRONMENT, scenario, "hads", 4, 180.0, first_seed=7)
    mine = play(BagCost(), OnePlan(plan, ENVIRONMENT, scenario, 180.0, 7), 4)
    common = 0
    for one, other in zip(hads, mine, strict=True):
        assert other.scheduler == "bag_cost"
        assert not other.missed
        types = {name for name, _ in hibernated_s(one)} & {name for name, _ in hibernated_s(other)}
        for name in types:
            first = [min(s for kind, s in hibernated_s(each) if kind == name) for each in (one, other)]
            assert first[0] == first[1]
            common += 1
    assert common > 3
    # Without a plan it places the tasks itself, on other VMs.
    own = play(BagCost(), OnePlan(unplanned(plan), ENVIRONMENT, scenario, 180.0, 7), 1)[0]
    assert not own.missed
    assert {span.task for span in own.tasks} == set(range(60))
    assert own.vms[: len(plan.vms)] != tuple(planned.vm for planned in plan.vms)


def test_simulate_carries_out_a_map_by_a_policy(map_file: Path) -> None:
    words = ("--scenario", "none", "--seeds", 1, "--scheduler", "bag_cost")
    rows = table(printed("simulate", "bag", map_file, *words))
    # As for HADS: one VM, nothing hibernates, both tasks end on it.
    assert rows["bag_cost"][:5] == ["0", "of", "1", "0.0031", "313"]


def test_the_table_is_written_from_what_was_measured() -> None:
    def player(usd: float, makespan_s: float, missed: float = 0.0) -> dict[str, float]:
        return {"cost_usd": usd, "makespan_s": makespan_s, "objective": usd, "missed": missed}

    def cell(change: float, burst: bool) -> dict[str, Any]:
        players = {
            "hads": player(0.1, 2000),
            "bag_cost": player(0.09, 900),
            "mtdqn": player(0.08, 800, 0.1),
        }
        if burst:
            players["burst-hads"] = player(0.2, 1000)
        against = {"mean": change, "interval": [change - 2, change + 3]}
        return {"better": "hads", "players": players, "against": {"bag_cost": against, "mtdqn": against}}

    text = table_ours.body({"chapters": {"9": {"J60": {"s_1": cell(-20, True), "s_2": cell(-10, False)}}}})
    assert "| J60 s_1 | 0.100 | 2000 | 0.200 | 1000 | 0.090 | 900 | 0.080 | 800 |" in text
    assert "-20.0 % [-22.0, -17.0] | 0 | -20.0 % [-22.0, -17.0] | 3 |" in text
    assert "| J60 s_2 | 0.100 | 2000 |  |  | 0.090 |" in text
    assert "Means over the 1 rows in which all play: HADS 0.100 USD and 2000 s, Burst-HADS 0.200 USD" in text
    assert "`mtdqn` -15.0 % (worst row -10.0 %)" in text
