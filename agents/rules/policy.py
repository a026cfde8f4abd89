"""A rule as a Policy: the compiled kernel, its parameters and the memory of each lane."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from functools import cache
from types import FunctionType
from typing import Any

import numpy as np
from numba import njit

from spotweave.agents.policy import Policy
from spotweave.agents.rules.choice import (
    MEMORY_SIZE,
    NO_ACTION,
    begin_memory,
    flat_action,
    is_valid,
    keep_idle,
    stays,
)
from spotweave.agents.rules.registry import RuleParameters
from spotweave.envs.simulation.compiled import OPTIONS, Kernel, inner
from spotweave.envs.simulation.series import Floats, Ints
from spotweave.envs.simulation.snapshot import (
    FloatArray,
    MaskArray,
    Observation,
    ObservationArrays,
    contiguous,
)

_SEED_BITS = (1 << 63) - 1


class RulePolicy(Policy):
    """One rule of the literature behind the common interface.

    A lane that was never begun behaves as if begun with seed 0.

    Attributes:
        name: registered name of the rule.
        parameters: what `vector` was made from.
        vector: (P,) float64 parameters as the kernel reads them.
        memory: (lanes, MEMORY_SIZE) float64, a row per lane; grows with the highest lane begun.
    """

    def __init__(
        self, name: str, choose: Kernel, parameters: RuleParameters, keeps_idle: bool = True
    ) -> None:
        self.name = name
        self._answer, self._answer_rows = answers(choose, keeps_idle)
        self.parameters = parameters
        self.vector: Floats = parameters.vector()
        self.memory: Floats = np.empty((0, MEMORY_SIZE), np.float64)
        self._grow(1)

    def _grow(self, lanes: int) -> None:
        """Have at least `lanes` rows of memory."""
        have = len(self.memory)
        if lanes > have:
            grown = np.empty((max(lanes, 2 * have), MEMORY_SIZE), np.float64)
            grown[:have] = self.memory
            for lane in range(have, len(grown)):
                begin_memory(grown[lane], 0)
            self.memory = grown
            self._lane_zero = grown[0]

    def begin(self, lane: int, seed: int) -> None:
        """Start an episode in a lane: its memory follows from the seed only."""
        if lane < 0:
            raise ValueError(f"lane must be >= 0, got {lane}")
        self._grow(lane + 1)
        begin_memory(self.memory[lane], seed & _SEED_BITS)

    def act_batch(self, observations: Observation, lanes: Ints) -> Ints:
        """(n,) flat actions for observations with a leading axis of n.

        Raises:
            ValueError: if an observation has no valid action, or there are not as many lanes as observations.
        """
        n = len(observations["jobs"])
        lanes = np.ascontiguousarray(lanes, np.int64)
        if lanes.shape != (n,):
            raise ValueError(f"got {n} observations and lanes of shape {lanes.shape}, expected ({n},)")
        return self._choose(observations, np.arange(n), lanes)

    def act_lanes(self, observations: Observation, lanes: Ints) -> Ints:
        """(n,) flat actions for the rows `lanes` of the observations, which are not copied.

        Raises:
            ValueError: if one of these observations has no valid action.
        """
        lanes = np.ascontiguousarray(lanes, np.int64)
        return self._choose(observations, lanes, lanes)

    def _choose(self, observations: Observation, rows: Ints, lanes: Ints) -> Ints:
        actions = np.empty(len(lanes), np.int64)
        if len(lanes) == 0:
            return actions
        if lanes.min() < 0:
            raise ValueError(f"lanes must be >= 0, got {int(lanes.min())}")
        self._grow(int(lanes.max()) + 1)
        self._answer_rows(*contiguous(observations), rows, lanes, self.memory, self.vector, actions)
        if actions.min() == NO_ACTION:
            row = int(rows[np.argmin(actions)])
            raise ValueError(f"rule {self.name}: observation {row} offers no valid action, expected a job")
        return actions

    def act(self, observation: Observation) -> int:
        """The flat action for one observation (lane 0), without the detour over a batch.

        Raises:
            ValueError: if the observation has no valid action.
        """
        action = int(self._answer(*contiguous(observation), self._lane_zero, self.vector))
        if action == NO_ACTION:
            raise ValueError(f"rule {self.name}: the observation offers no valid action, expected a job")
        return action


# The loop that most rules share, and what a policy calls.
#
# A rule is a compiled function `choose(obs, memory, parameters) -> int` over ONE observation: its arrays
# (`envs.simulation.snapshot.ObservationArrays`), the lane's memory (see `agents.rules.choice`) and the
# rule's parameters as a vector. It gives a flat action, or NO_ACTION where no job is open.


def scored(pick_job: Kernel, score: Kernel, worst: float | tuple[float, ...] = -np.inf) -> Kernel:
    """The rule that picks a job and puts it on the valid cluster of its highest score.

    Among equals the first cluster wins. A job that runs is left where it is, and one without a valid cluster
    waits.

    Args:
        pick_job: compiled, (obs) -> row of the job, negative if none is open.
        score: compiled, (obs, job, cluster, parameters) -> float, or a tuple of floats, of which
            each decides between equals in those before it.
        worst: a score of the same form, below every other.

    Returns:
        `choose(obs, memory, parameters)`, compiled.
    """
    return inner(_with_names(_choose_scored, score, {"pick_job": pick_job, "score": score, "worst": worst}))


@cache
def answers(choose: Kernel, keeps_idle: bool) -> tuple[Kernel, Kernel]:
    """What a policy calls from Python, for one observation and for rows of a batch.

    Args:
        choose: the rule.
        keeps_idle: a task that is idle between two rounds keeps its instance, whatever the rule chose.

    Returns:
        `answer(*obs, memory, parameters) -> action` and
        `answer_rows(*observations, rows, lanes, memory, parameters, actions)`, compiled.
    """
    options = {**OPTIONS, "_nrt": choose.targetoptions.get("_nrt", True), "cache": True}
    answer = njit(**options)(_with_names(_answer, choose, {"choose": choose, "keeps_idle": keeps_idle}))
    return answer, njit(**options, nogil=True)(_with_names(_answer_rows, choose, {"answer": answer}))


def _with_names(template: Callable[..., Any], home: Kernel, names: Mapping[str, Any]) -> Callable[..., Any]:
    """The template with these global names, as a function of the file in which `home` stands.

    A closure would do the same, but numba finds no cached closure over compiled functions again: these are
    other ones in every process. Its cache knows a function by file, line and qualified name, so the names go
    into the latter. With `home`'s file as its own, the function is compiled again when that changes.
    """
    source = home.py_func
    code = template.__code__.replace(
        co_filename=source.__code__.co_filename, co_firstlineno=source.__code__.co_firstlineno
    )
    told = [
        (name, f"{value.__module__}.{value.__qualname__}" if callable(value) else value)
        for name, value in sorted(names.items())
    ]
    number = hashlib.sha256(repr(told).encode()).hexdigest()[:12]
    function = FunctionType(code, {**template.__globals__, **names}, template.__name__)
    function.__module__ = source.__module__
    function.__qualname__ = f"{template.__name__}_{number}"
    return function


@cache
def from_python(function: Kernel) -> Kernel:
    """A function that compiled functions alone call, as Python can call it: compiled at its first call."""
    return njit(cache=True, error_model="numpy")(_with_names(_call, function, {"called": function}))


def _stand_in(*_: object) -> Any:
    raise NotImplementedError("a template is compiled with names of its own")


# What stands under these names in the templates below is put there by `_with_names`.
pick_job = score = choose = answer = called = _stand_in
worst: Any = 0.0
keeps_idle = False


def _choose_scored(obs: ObservationArrays, memory: Floats, parameters: Floats) -> int:
    job = pick_job(obs)
    if job < 0:
        return NO_ACTION
    best = -1
    if not stays(obs, job):
        highest = worst
        for cluster in range(obs.clusters.shape[0]):
            if is_valid(obs, job, cluster):
                value = score(obs, job, cluster, parameters)
                if best < 0 or value > highest:
                    best, highest = cluster, value
    return flat_action(obs, job, best)


def _call(*arguments: Any) -> Any:
    return called(*arguments)


def _answer(
    clusters: FloatArray,
    occupation: FloatArray,
    jobs: FloatArray,
    pairs: FloatArray,
    mask: MaskArray,
    memory: Floats,
    parameters: Floats,
) -> int:
    obs = ObservationArrays(clusters, occupation, jobs, pairs, mask)
    action: int = choose(obs, memory, parameters)
    if keeps_idle and action != NO_ACTION:
        return keep_idle(obs, action)
    return action


def _answer_rows(
    clusters: FloatArray,
    occupation: FloatArray,
    jobs: FloatArray,
    pairs: FloatArray,
    mask: MaskArray,
    rows: Ints,
    lanes: Ints,
    memory: Floats,
    parameters: Floats,
    actions: Ints,
) -> None:
    for k in range(rows.shape[0]):
        r = rows[k]
        actions[k] = answer(
            clusters[r], occupation[r], jobs[r], pairs[r], mask[r], memory[lanes[k]], parameters
        )
