"""The policies of a deployment, by the names of its configuration: rules, released policies, files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from spotweave.agents.named import RULE_NAMES, named_rule, question_rules
from spotweave.agents.policy import ByKind, Policy
from spotweave.agents.stored import CheckpointError, load_policy_state, policy_file, stored_policy
from spotweave.agents.value_policy import ValuePolicy
from spotweave.deploy.scheduler.decider import WINDOW
from spotweave.envs.simulation.world import WorldSpec

MARKET_COMPONENTS = ("own_misses", "mutual_misses", "delay", "money", "owned_hours")
FEDERATED_COMPONENTS = ("delay", "cost")
MARKET_STAND_IN, ROUNDS_STAND_IN = "expected_cost", "round_cost"
"""Rules that decide where a policy's file is damaged."""


@dataclass(frozen=True)
class Loaded:
    """A policy and what its values are called."""

    policy: Policy  # ready to act
    components: tuple[str, ...]  # names of its value components; empty for a rule
    source: str  # rule or path, for people
    others: tuple[str, ...] = ()  # environments whose policies its file holds as well
    # why the policy that was named cannot be used, for which this rule stands in; "" for none
    unusable: str = ""


def load_market_policy(
    name: str, n_offers: int, weights: Sequence[float] | None = None, strict: bool = True
) -> Loaded:
    """A rule, or a policy trained for `+env=multicloud`: for Spark jobs.

    Args:
        name: a rule's name, a released policy's, or a path.
        n_offers: how many offers the deployment has.
        weights: of the value components; None: those it was trained with.
        strict: False: for a file that is damaged its rule stands in (see `Loaded.unusable`).

    Raises:
        ValueError: one line, if there is no such policy, it is for another world or number of offers, or it
            cannot be weighed.
    """
    stand_in = None if strict else MARKET_STAND_IN
    return _load(name, "multicloud", MARKET_COMPONENTS, n_offers, weights, stand_in)


def load_round_policy(name: str, n_offers: int, strict: bool = True) -> Loaded:
    """A rule of `agents.federated`, or a policy trained for `+env=federated`: for federated tasks.

    Raises ValueError: as `load_market_policy`.
    """
    known = question_rules("federated")
    if name in RULE_NAMES and name not in known:
        raise ValueError(
            f"policy {name!r} does not know federated tasks: expected one of {', '.join(known)}, "
            "a released policy or a path"
        )
    return _load(name, "federated", FEDERATED_COMPONENTS, n_offers, None, None if strict else ROUNDS_STAND_IN)


def load_federated_policy(name: str | None, market: Loaded, n_offers: int, strict: bool = True) -> Loaded:
    """The policy for federated tasks that a deployment names.

    `name` None: the market policy, or what its file holds for federated tasks. Raises ValueError: as
    `load_market_policy`.
    """
    if name is None and market.unusable:
        name = ROUNDS_STAND_IN
    elif name is None and "federated" in market.others:
        name = market.source
    if name is not None:
        return load_round_policy(name, n_offers, strict)
    if not knows_rounds(market.policy):
        raise ValueError(
            f"{market.source} was not trained with federated tasks: name a policy for these, or train "
            "agent=mtdqn with +env=multicloud"
        )
    return market


def knows_rounds(policy: Policy) -> bool:
    """Whether a policy for Spark jobs can decide about federated tasks: rules can, and who follows one."""
    return not isinstance(policy, ValuePolicy)


def combined(market: Loaded, federated: Loaded) -> Policy:
    """One policy for all tasks."""
    if federated.policy is market.policy:
        return market.policy
    return ByKind(market.policy, federated.policy)


def _load(
    name: str,
    world: str,
    components: tuple[str, ...],
    n_offers: int,
    weights: Sequence[float] | None,
    stand_in: str | None,
) -> Loaded:
    k = len(components)
    spec = WorldSpec(
        name=world,
        window=WINDOW,
        n_clusters=n_offers,
        cluster_names=tuple(f"offer {number}" for number in range(n_offers)),
        components=components,
        weights=(1.0,) * k,
        scales=(1.0,) * k,
        metrics=("objective",),
        higher_is_better=(False,),
        time_unit="s",
    )
    if name in RULE_NAMES:
        if weights is not None:
            raise ValueError(f"policy {name!r} is a rule, which has no value components: leave weights out")
        return Loaded(named_rule(name, spec), (), f"rule {name}")
    path = policy_file(name)
    try:
        state = load_policy_state(path)
    except CheckpointError as error:
        if stand_in is None:
            raise
        return Loaded(named_rule(stand_in, spec), (), f"rule {stand_in}", unusable=str(error))
    policy = stored_policy(path, state, spec, weights)
    return Loaded(policy, components, str(path), tuple(state.get("worlds", ())))
