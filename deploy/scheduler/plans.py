"""Plans of workflows: the cluster of each step that gets the whole done first (Liu 2022, Algorithm 2)."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from spotweave.agents.workflows.annealing import AnnealingSettings, plan_by_annealing
from spotweave.agents.workflows.planners import PLANNERS, checked_plan
from spotweave.agents.workflows.solution import Solution
from spotweave.deploy.billing import Transfers
from spotweave.deploy.model.instances import Offer, slowness
from spotweave.deploy.model.jobs import JobSpec, ban
from spotweave.deploy.model.tasks import Phase
from spotweave.deploy.model.workflows import Workflow
from spotweave.deploy.store.instances import Instance, all_have_notice
from spotweave.deploy.store.tasks import Task
from spotweave.envs.simulation.workflows import model
from spotweave.envs.simulation.workflows.problem import Problem

BRIEF = AnnealingSettings(iterations=20_000, runs=2_000_000)
"""The loop waits for a plan: a few hundredths of a second for tens of steps, 0.2 s for 200."""
_ALMOST = 0.99  # a step that runs has something left to do
_MOVE_S = 1.0
"""What moving a file takes at least: so that a step runs where its files are if all else is equal."""


@dataclass(frozen=True)
class Stand:
    """A step that has begun."""

    region: str
    progress: float  # share that is done; 1 for one that has succeeded


def stands_of(tasks: Sequence[Task], held: Sequence[Instance]) -> dict[str, Stand]:
    """By step: those that run or have succeeded; the others wait."""
    by_name = {one.instance_id: one for one in held}
    found = {}
    for task in tasks:
        here = [by_name[name] for name in task.instances if name in by_name]
        if task.phase is Phase.SUCCEEDED:
            found[task.key.task] = Stand(task.saved_region, 1.0)
        elif here and not all_have_notice(here):
            found[task.key.task] = Stand(here[0].offer.region, min(_ALMOST, task.progress))
    return found


class Plans:
    """Planned regions of waiting steps.

    A plan is made whenever one of its steps is decided about, from what is true then: what has ended and
    where its files are, what runs and how far it is, which offers have room. So a step that is late, or a
    cluster that is lost, changes it at once. It minimises the time of the whole, not its price.

    Annealing is as brief as `BRIEF` says. `start_s` is expected from a ready instance to work.
    """

    def __init__(self, planner: str, start_s: float, transfers: Transfers) -> None:
        self._planner, self._start_s, self._transfers = planner, start_s, transfers
        # The first plan loads compiled code, which takes a second: not in a pass that others wait for.
        one = model.Step("one", model.Profile(run_s={"here": 1.0}, executors=1))
        here = model.Platform((model.Cluster("here", 1),), model.Link(1.0))
        checked_plan(self._plan, model.Workflow("first", (), (one,)), here)

    def regions(
        self, spec: JobSpec, stands: Mapping[str, Stand], offers: Sequence[Offer], used: Counter[str]
    ) -> Mapping[str, str]:
        """By step: its region, of those that have not succeeded; nothing while one of them fits no offer.

        `used` counts instances of other jobs by offer; `stands` are those of the steps (see
        `stands_of`).
        """
        if not offers:
            return {}
        left, platform = self.problem(spec, stands, offers, used)
        if not all(step.profile.run_s for step in left.steps):
            return {}  # Of a provider that does not answer now, say.
        plan = checked_plan(self._plan, left, platform)
        return {placed.step: placed.cluster for placed in plan.placements}

    def _plan(self, problem: Problem) -> Solution:
        if self._planner == "annealing":
            return plan_by_annealing(problem, settings=BRIEF)
        return PLANNERS[self._planner](problem, 0)

    def problem(
        self, spec: JobSpec, stands: Mapping[str, Stand], offers: Sequence[Offer], used: Counter[str]
    ) -> tuple[model.Workflow, model.Platform]:
        """What is left of a workflow, and the regions as clusters; arguments as `regions`."""
        work = spec.work
        assert isinstance(work, Workflow)
        run_s = {
            step.name: self._run_s(spec, step.name, stands.get(step.name), offers, used)
            for step in work.steps
            if step.name not in stands or stands[step.name].progress < 1.0
        }
        steps = tuple(
            model.Step(
                step.name,
                model.Profile(run_s=run_s[step.name], executors=step.executors),
                tuple(dict.fromkeys(step.reads)),
                tuple(file.name for file in step.writes),
            )
            for step in work.steps
            if step.name in run_s
        )
        room: defaultdict[str, int] = defaultdict(int)
        for offer in offers:
            room[offer.region] += max(0, offer.quota - used[offer.offer_id]) if offer.available else 0
        for step in steps:
            for region in step.profile.run_s:
                room[region] = max(room[region], step.profile.executors or 1)
        # Data may lie where nothing runs, or nothing runs any more.
        for place in (*(file.region for file in work.files), *(stand.region for stand in stands.values())):
            room[place or offers[0].region] += 0
        clusters = tuple(model.Cluster(region, max(1, count)) for region, count in room.items())
        files = tuple(self._files(work, stands, tuple(room), run_s.keys()))
        seconds_gb = self._transfers.seconds_gb
        links = {
            frozenset((a, b)): model.Link(1.0 / seconds, _MOVE_S)
            for a in room
            for b in room
            if a != b and (seconds := max(seconds_gb.get((a, b), 0.0), seconds_gb.get((b, a), 0.0))) > 0
        }
        at_once = model.Link(math.inf, _MOVE_S)
        return model.Workflow(spec.name, files, steps), model.Platform(clusters, at_once, links)

    def _run_s(
        self, spec: JobSpec, step: str, stand: Stand | None, offers: Sequence[Offer], used: Counter[str]
    ) -> dict[str, float]:
        """By region where a step may run: seconds until it has ended there, once its files are there."""
        assert isinstance(spec.work, Workflow)
        standard_s, profile = spec.work.standard_s_of(step), spec.profile
        if stand is not None:
            return {stand.region: (1.0 - stand.progress) * standard_s}
        wanted, places = spec.resources_of(step), spec.places_of(step)
        allowed = [offer for offer in offers if ban(wanted, places, offer) is None]
        free = [
            offer
            for offer in allowed
            if offer.available and offer.quota - used[offer.offer_id] >= wanted.instances
        ]
        found: dict[str, float] = {}
        # Where there is no room anywhere, it waits for the best.
        for offer in free or allowed:
            slow = slowness(offer.speed, profile.reference_speed, profile.sensitivity)
            seconds = offer.launch_s + self._start_s + standard_s * slow
            found[offer.region] = min(seconds, found.get(offer.region, seconds))
        return found

    def _files(
        self, work: Workflow, stands: Mapping[str, Stand], regions: tuple[str, ...], left: Collection[str]
    ) -> Iterator[model.File]:
        named = {name for step in work.steps if step.name in left for name in step.reads}
        for file in work.files:
            if file.name in named:
                yield model.File(file.name, file.gb, (file.region,) if file.region else regions)
        for step in work.steps:
            for output in step.writes:
                if step.name in left:
                    yield model.File(output.name, output.gb)
                elif output.name in named:
                    yield model.File(output.name, output.gb, (stands[step.name].region,))
