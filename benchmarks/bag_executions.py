"""Seconds for 1,000 executions of the job ED200 under HADS while its spot VMs hibernate and resume."""

from __future__ import annotations

import time
from collections.abc import Iterator

from agents.bags.schedulers import Hads
from benchmarks.machine import one_core
from benchmarks.measurement import Measurement
from envs.simulation.bags.execution import Execution
from envs.simulation.bags.scenarios import SCENARIOS, drawn
from training.studies.bags.chapter_7 import ENVIRONMENT, starting_plan

EXECUTIONS = 1000
BAR_S = 60.0


def measure(*, smallest: bool = False) -> Iterator[Measurement]:
    """CPU seconds, so that neighbours cost nothing; the plan is made before the clock starts."""
    plan, executions = starting_plan("ED200"), 2 if smallest else EXECUTIONS
    scenario = SCENARIOS["sc_4"]
    with one_core():
        Execution(plan, ENVIRONMENT, drawn(scenario, executions), Hads()).run()
        started = time.process_time()
        for seed in range(executions):
            Execution(plan, ENVIRONMENT, drawn(scenario, seed), Hads()).run()
        seconds = time.process_time() - started
    yield Measurement(
        f"{executions:,} executions of 200 tasks on 16 spot VMs",
        seconds,
        "s",
        BAR_S,
        higher_is_better=False,
        note=f"HADS decides, scenario sc_4; {executions / seconds:.0f} per CPU second of one core",
    )
