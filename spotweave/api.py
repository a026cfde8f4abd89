"""What `import spotweave` offers: environments, trained policies, training, comparisons (docs/library.md)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast, overload

import gymnasium
import numpy as np
from gymnasium.envs.registration import EnvSpec
from numpy.typing import NDArray

from spotweave.agents.library_policy import FlatPolicy, Flattening
from spotweave.agents.named import RULE_NAMES, named_rule
from spotweave.agents.networks import WeighedPolicy
from spotweave.agents.policy import Policy
from spotweave.agents.registry import LibrarySettings
from spotweave.agents.rules import make_rule
from spotweave.agents.stored import load_policy_state, policy_file, stored_policy
from spotweave.envs.environments import ENVIRONMENTS
from spotweave.envs.environments import make as make_environment
from spotweave.envs.simulation.compiled import announce_compiling
from spotweave.envs.simulation.snapshot import Observation, take_rows
from spotweave.envs.simulation.world import EpisodeKey, WorldSpec
from spotweave.envs.single import WorldEnv
from spotweave.mistakes import EXIT_INTERRUPTED
from spotweave.training.adapters.base import FlatWorldEnv, calibrate, nearest_valid
from spotweave.training.checkpoint import load_policy
from spotweave.training.config import UsageError, compose_values, plain, typed
from spotweave.training.evaluation.comparison import (
    ComparisonSettings,
    measure,
    print_comparison,
    write_comparison,
)
from spotweave.training.evaluation.episodes import default_rules
from spotweave.training.evaluation.runs import Comparison
from spotweave.training.files import prepare_directory
from spotweave.training.trainers.command import start_or_resume

Chooses = Callable[[Any], Any]
"""From what an environment shows to the number of an action, or an array that holds it."""


@overload
def make(
    environment: str, *, flat: Literal[False] = False, render_mode: str | None = None, **settings: Any
) -> WorldEnv: ...


@overload
def make(
    environment: str, *, flat: Literal[True], render_mode: str | None = None, **settings: Any
) -> FlatWorldEnv: ...


def make(
    environment: str, *, flat: bool = False, render_mode: str | None = None, **settings: Any
) -> WorldEnv | FlatWorldEnv:
    """An environment, ready for `reset`.

    Args:
        environment: a name that `spotweave envs` lists, or its Gymnasium id.
        flat: show a vector of numbers and let an action that is not valid stand for one that is, as libraries
            expect it (see `FlatWorldEnv`); else the dictionary of arrays that Spotweave's own policies see.
        render_mode: None, "rgb_array" or "human": a Gantt chart.
        settings: fields of the environment's settings; a dictionary for those of a group:
            `make("multicloud", workload={"jobs": 60})`.

    Raises:
        UsageError: for an unknown environment or setting.
        WorldError: for settings that make no sense.
    """
    announce_compiling()
    name = _environment_name(environment)
    config = _config(name, settings)
    made: WorldEnv | FlatWorldEnv
    if not flat:
        made = make_environment(name, config, render_mode)
    elif render_mode is not None:
        raise UsageError("a flat environment draws nothing: leave out render_mode, or flat=True")
    else:
        made = _flat(name, config)
    # Where Gymnasium keeps what an environment was made of; `train` and `compare` read it.
    identity = ENVIRONMENTS[name].gymnasium or f"spotweave/{name}"
    made.spec = EnvSpec(
        identity,
        "spotweave.envs.environments:make",
        kwargs={"environment": name, "config": config},
        disable_env_checker=True,
    )
    return made


def _environment_name(environment: str) -> str:
    ids = {entry.gymnasium: name for name, entry in ENVIRONMENTS.items()}
    name = ids.get(environment.removeprefix("spotweave:"), environment)
    if name not in ENVIRONMENTS:
        raise UsageError(
            f"unknown environment {environment!r}: expected one of {', '.join(ENVIRONMENTS)}, or an id that "
            "Gymnasium knows it by"
        )
    return name


def _config(name: str, settings: Mapping[str, Any]) -> Any:
    kind = ENVIRONMENTS[name].config_class
    return typed(kind, _merged(plain(kind()), settings), "")


def _merged(values: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """`values` with what is given in their place, group by group."""
    both = dict(values)
    for key, value in given.items():
        inner = both.get(key)
        both[key] = (
            _merged(inner, value)
            if isinstance(value, Mapping) and isinstance(inner, Mapping)
            else plain(value)
        )
    return both


def _flat(name: str, config: Any) -> FlatWorldEnv:
    entry = ENVIRONMENTS[name]
    member = entry.members_of(config, "train")[0]
    world = entry.build(member, 1)
    guide = named_rule(compose_values("train", [f"+env={name}"])["trainer"]["guide"], world.spec)
    calibration = calibrate(
        world, [guide, make_rule("random")], EpisodeKey(0, "train", 0), LibrarySettings.jobs
    )
    return FlatWorldEnv(lambda: world, calibration.flattening, calibration.reward_scale)


def _made_of(environment: str | gymnasium.Env[Any, Any]) -> tuple[str, Any, Flattening | None]:
    """Name and settings of an environment, and how its observations are flattened, if they are."""
    if isinstance(environment, str):
        name = _environment_name(environment)
        return name, _config(name, {}), None
    kwargs = {} if environment.spec is None else environment.spec.kwargs
    name = str(kwargs.get("environment"))
    if name not in ENVIRONMENTS:
        raise UsageError(
            f"{environment} is no environment of Spotweave's: expected what spotweave.make or gymnasium.make "
            "gave, or a name"
        )
    config = kwargs.get("config")
    inner = environment.unwrapped
    flattening = inner.flattening if isinstance(inner, FlatWorldEnv) else None
    return name, _config(name, {}) if config is None else config, flattening


# Policies: what is read from files, and functions of the user's.


@dataclass(frozen=True)
class Choice:
    """One valid choice for the job that a policy decides, as the policy sees it."""

    action: int  # its number
    job: int  # row of the job in the observation
    cluster: str | None  # where the job would run; None: nowhere for now
    taken: bool  # whether the policy takes it
    # what ranks it, larger is better; None: the policy did not weigh it, or does not tell
    total: float | None
    values: Mapping[str, float]  # what the total is made of, by component, where the policy has components


class Trained(Policy):
    """A trained policy.

    Args:
        file: the policy.pt that it was read from.
        policy: what acts.
        spec: of the world that it acts in.

    Attributes:
        folder: where the file is: of a run, with its curves and tables, or of a release, with its card.
    """

    def __init__(self, file: Path, policy: Policy, spec: WorldSpec) -> None:
        self.name = policy.name
        self.folder = file.parent
        self.policy = policy
        self.spec = spec

    def __repr__(self) -> str:
        return f"<policy {self.name} for {self.spec.name}, {self.folder}>"

    def begin(self, lane: int, seed: int) -> None:
        """Start an episode in a lane."""
        self.policy.begin(lane, seed)

    def act_batch(self, observations: Observation, lanes: NDArray[np.int64]) -> NDArray[np.int64]:
        """(n,) flat actions."""
        return self.policy.act_batch(observations, lanes)

    def act_lanes(self, observations: Observation, lanes: NDArray[np.int64]) -> NDArray[np.int64]:
        """(n,) flat actions for some rows of the observations."""
        return self.policy.act_lanes(observations, lanes)

    def explain(self, observation: Observation) -> list[Choice]:
        """The valid choices for the job that `act` decides: what is taken first, then from the best on."""
        action = self.act(observation)
        n_places = observation["clusters"].shape[0] + 1
        job = action // n_places
        table = self._table(observation, job, n_places)
        names = self.spec.components if table.shape[1] == len(self.spec.components) else ()
        weights = self.policy.value_weights if isinstance(self.policy, WeighedPolicy) else (1.0,)
        clusters = self.spec.cluster_names
        choices = []
        for place in range(n_places):
            number = job * n_places + place
            if not observation["action_mask"][number]:
                continue
            row = table[place]
            total = float(row @ np.asarray(weights)) if len(row) and np.isfinite(row).all() else None
            choices.append(
                Choice(
                    number,
                    job,
                    clusters[place] if place < n_places - 1 else None,
                    number == action,
                    total,
                    {} if total is None else dict(zip(names, map(float, row), strict=bool(names))),
                )
            )
        return sorted(choices, key=lambda one: (not one.taken, -np.inf if one.total is None else -one.total))

    def _table(self, observation: Observation, job: int, n_places: int) -> NDArray[np.float64]:
        """(places, K) values of the job's choices; K is 0 where the policy has none."""
        batch = cast(Observation, {name: np.asarray(array)[None] for name, array in observation.items()})
        if isinstance(self.policy, WeighedPolicy):
            found = self.policy.value_table(batch)
            return cast(NDArray[np.float64], found.reshape(1, -1, n_places, found.shape[-1])[0, job])
        if isinstance(self.policy, FlatPolicy):
            scores = self.policy.scores(batch, np.zeros(1, np.int64)).detach().cpu().numpy()
            return cast(NDArray[np.float64], scores.reshape(-1, n_places, 1)[job].astype(np.float64))
        return np.zeros((n_places, 0))


def load(checkpoint: str | Path, environment: str | gymnasium.Env[Any, Any] | None = None) -> Trained:
    """A trained policy.

    Args:
        checkpoint: a released name ("multicloud", "liu2022/spotweave", ...), a run's folder, or a policy.pt.
        environment: where it shall act; None: the one it was trained for, with default settings.

    Raises:
        CheckpointError: if there is none, it is damaged, or it was trained for another environment.
        UsageError: if it holds policies of several environments and none is named.
    """
    file = policy_file(str(checkpoint))
    state = load_policy_state(file)
    if environment is None:
        if "worlds" in state:
            raise UsageError(
                f"{checkpoint} holds policies for {', '.join(state['worlds'])}: name one, as in "
                f"load({str(checkpoint)!r}, 'multicloud')"
            )
        environment = str(state["world"]["name"])
    spec = _world_spec(*_made_of(environment)[:2])
    return Trained(file, stored_policy(file, state, spec), spec)


def _world_spec(name: str, config: Any) -> WorldSpec:
    entry = ENVIRONMENTS[name]
    return entry.build(entry.members_of(config, "validation")[0], 1).spec


class _Function(Policy):
    """A function of the user's, which sees what the environment shows."""

    def __init__(self, name: str, function: Chooses, flattening: Flattening | None) -> None:
        self.name = name
        self.function = function
        self.flattening = flattening

    def act_batch(self, observations: Observation, lanes: NDArray[np.int64]) -> NDArray[np.int64]:
        rows = range(len(observations["action_mask"]))
        return np.array([self._one(take_rows(observations, slice(k, k + 1))) for k in rows], np.int64)

    def _one(self, observation: Observation) -> int:
        if self.flattening is None:
            return _action(
                self.name,
                self.function({name: np.array(cast(Any, array)[0]) for name, array in observation.items()}),
            )
        features, mask = self.flattening.features(observation)[0], self.flattening.mask(observation)[0]
        return nearest_valid(_action(self.name, self.function(features)), mask)


def _action(name: str, answer: Any) -> int:
    """An action from what a function returned: an integer, or an array that holds one."""
    array = np.asarray(answer)
    if array.size != 1 or not np.issubdtype(array.dtype, np.integer):
        raise UsageError(f"policy {name!r} returned {answer!r}: expected the number of an action")
    return int(array.item())


# Training and comparing, as the commands do it.


def train(environment: str | gymnasium.Env[Any, Any], **settings: Any) -> Trained:
    """Train a policy as `spotweave train` does, and read back the best one on validation.

    Args:
        environment: a name, an id, or an environment whose settings are trained with.
        settings: keys of the command: `seed=1`, `out="runs/mine"`, `trainer="quick"`, `agent="mtdqn"`; a
            dictionary for single values of a group: `trainer={"name": "quick", "episodes": 40}`.

    Raises:
        UsageError, WorldError, CheckpointError, WriteError: one line each.
        KeyboardInterrupt: after Ctrl-C; everything is saved, and `resume=` goes on.
    """
    announce_compiling()
    name, config, _ = _made_of(environment)
    words = [f"+env={name}"]
    given = dict(settings)
    for group in ("agent", "trainer"):
        value = given.get(group)
        if isinstance(value, Mapping):
            given[group] = {key: item for key, item in value.items() if key != "name"}
            value = value.get("name")
        else:
            given.pop(group, None)
        if value is not None:
            words.append(f"{group}={value}")
    values = compose_values("train", words)
    for key in given:
        if key not in values or key == "env":
            raise UsageError(
                f"unknown setting {key}: expected one of {', '.join(sorted(values.keys() - {'env'}))}"
            )
    values = _merged(values, given) | {"env": {"name": name, **plain(config)}}
    code, run = start_or_resume(values, f"spotweave.train({name!r}, ...)")
    if code == EXIT_INTERRUPTED:
        raise KeyboardInterrupt
    spec = _world_spec(name, config)
    return Trained(run.policy, load_policy(run.policy, spec), spec)


def compare(
    environment: str | gymnasium.Env[Any, Any],
    policies: Mapping[str, Chooses | Policy | str],
    *,
    episodes: int = 50,
    rules: Sequence[str] | None = None,
    suite: str = "test",
    out: str | Path | None = None,
) -> Comparison:
    """Play the same episodes with several policies, print the table of `spotweave compare`, and return it.

    Args:
        environment: a name, an id, or an environment whose settings are played.
        policies: by name, the reference first: a function from an observation of this environment to an
            action, a policy, or what `load` takes.
        episodes: how many of the suite's first.
        rules: names of the rules that join; None: the strongest that are made for the environment.
        suite: "train", "validation" or "test".
        out: folder for report.html, summary.json and episodes.csv; None: nothing is written.

    Raises:
        UsageError, WorldError, CheckpointError, WriteError: one line each.
        ValueError: if a policy chooses an action that is not valid.
    """
    announce_compiling()
    name, config, flattening = _made_of(environment)
    entry = ENVIRONMENTS[name]
    env = {"name": name, **plain(config)}
    if rules is None:
        rules = default_rules(env)[:7] if entry.rivals is None else entry.rivals
    spec = _world_spec(name, config)
    if len(policies) + len(rules) < 2:
        raise UsageError("a comparison needs at least 2 policies: name another one, or leave out rules=")
    own = [_contestant(key, policy, spec, flattening) for key, policy in policies.items()]
    directory = None if out is None else prepare_directory(Path(out))
    settings = ComparisonSettings(
        policies=[rule for rule in rules if rule not in policies], suite=suite, episodes=episodes
    )
    measured = measure(env, settings, None, own=own, draw=directory is not None)
    if directory is not None:
        write_comparison(measured, directory)
    print_comparison(measured.comparison, directory)
    return measured.comparison


def _contestant(
    name: str, policy: Chooses | Policy | str, spec: WorldSpec, flattening: Flattening | None
) -> Policy:
    if isinstance(policy, str):
        is_rule = policy in RULE_NAMES
        found = named_rule(policy, spec) if is_rule else load_policy(policy_file(policy), spec)
    elif isinstance(policy, Policy):
        found = policy.policy if isinstance(policy, Trained) else policy
    elif callable(policy):
        return _Function(name, policy, flattening)
    else:
        raise UsageError(f"policy {name!r} is {policy!r}: expected a function, a policy, or the name of one")
    named = copy(found)
    named.name = name
    return named
