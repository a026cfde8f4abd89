"""One decision: the policy's choice for one of the needs, and every candidate with values and a reason."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

import numpy as np
from numpy.typing import NDArray

from spotweave.agents.mtdqn.policy import MTDQNPolicy
from spotweave.agents.named import RULE_NAMES, named_rule, question_rules
from spotweave.agents.networks import ValuePolicy, WeighedPolicy
from spotweave.agents.policy import ByKind, Policy
from spotweave.agents.rules.expected_cost import appraise
from spotweave.agents.stored import CheckpointError, load_policy_state, policy_file, stored_policy
from spotweave.deploy.model.instances import Offer
from spotweave.deploy.scheduler.needs import Need
from spotweave.deploy.scheduler.snapshot import Occupancy, Row, View, observe, snapshot_of
from spotweave.envs.simulation import columns as col
from spotweave.envs.simulation.guards import GuardRules, GuardsConfig
from spotweave.envs.simulation.snapshot import FloatArray, MaskArray, Observation, Snapshot, encode
from spotweave.envs.simulation.world import WorldSpec

# A policy's answer, looked at before anything follows from it.
#
# A policy is a program of its own, often a learned one: it may raise, name a place that is not there or that
# the mask forbids, or decide by values that are not numbers. None of this may start a task where it must not
# be, or end a pass. Then the rule decides that such policies are trained with, and "none for now" where even
# that gives no valid answer.

GUIDE = "expected_cost"

Fault = Literal["error", "index", "masked", "values"]
"""An exception, an unknown place, a masked place, values that are not finite."""
_LONGEST = 200


@dataclass(frozen=True)
class Invalid:
    """A policy's answer that was not followed."""

    fault: Fault
    answered: str  # the answer in words, one line

    @property
    def words(self) -> str:
        """In one line, for people."""
        return f"the policy's answer is not valid ({self.answered}): {GUIDE} decided"


class InvalidAnswerError(Exception):
    """An answer that must not be followed."""

    def __init__(self, fault: Fault, answered: str) -> None:
        super().__init__(answered)
        self.fault = fault


def valid_answer(policy: Policy, observation: Observation) -> int:
    """The flat action that a policy takes.

    Raises InvalidAnswerError if it raises, or answers what is not among the valid actions.
    """
    try:
        action = policy.act(observation)
    except Exception as error:
        raise raised(error) from error
    mask = observation["action_mask"]
    if not isinstance(action, int | np.integer) or not 0 <= action < len(mask):
        raise InvalidAnswerError("index", f"action {_short(action)}, there are {len(mask)}")
    if not mask[action]:
        raise InvalidAnswerError("masked", f"action {action}, which the mask forbids")
    return int(action)


def guided(observation: Observation) -> int:
    """The flat action of the guide; "none for now" of the first task where it gives no valid one."""
    try:
        return valid_answer(named_rule(GUIDE), observation)
    except InvalidAnswerError:
        return int(observation["clusters"].shape[0])


def require_finite(*tables: NDArray[np.floating[Any]]) -> None:
    """Raise InvalidAnswerError unless all of these are numbers."""
    wrong = sum(int((~np.isfinite(table)).sum()) for table in tables)
    if wrong:
        raise InvalidAnswerError("values", f"{wrong} of its values are not finite")


def raised(error: Exception) -> InvalidAnswerError:
    """Turn an exception of a policy into an invalid answer."""
    return InvalidAnswerError("error", _short(f"{type(error).__name__}: {error}"))


def _short(answer: object) -> str:
    text = " ".join(str(answer).split())
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


WINDOW = 8  # needs that a policy sees at once, as in the market world
Table = tuple[dict[str, NDArray[np.float64]], NDArray[np.float64] | None]
"""(C + 1,) of each value component of one task, and the totals; None for what gives none."""


@dataclass(frozen=True)
class Candidate:
    """One place for a task, or none for now."""

    offer_id: str | None
    valid: bool  # whether it may be chosen now
    reason: str  # why not; "" where it may
    gives_way: bool  # whether the rule `expected_cost` leaves it to tasks that lose more by waiting
    # what the policy ranks by, higher is better: its values, weighed; None where it gives no number
    total: float | None
    values: dict[str, float]  # by component of the policy's value, in its units; empty for a rule
    expected_usd: float  # until the task's end, delay and misses included, by the rule `expected_cost`
    price_usd_hour: float  # of all instances that the task would hold there, now
    finish_s: float  # expected seconds until the end of its work (or next execution) there
    risk: float  # chance of an interruption until then, as the rule `expected_cost` estimates it
    cost_usd: float  # expected cost of that at the price of now
    region: str
    egress_usd: float  # charged for moving its data there if it starts there


@dataclass(frozen=True)
class Decision:
    """What a policy chose."""

    policy: str
    need: Need
    offer_id: str | None  # where to; None for none for now
    candidates: tuple[Candidate, ...]  # all, best first, those that are not valid last
    row: Row  # what the policy saw of the task
    lost: str = ""  # why its deadline can be met nowhere any more, so that it was not shown; "" otherwise
    # the policy's answer, where another rule decided because it was not valid
    invalid: Invalid | None = None
    # what decided, where another valid candidate has a better total or, of a rule, is expected to cost less;
    # "" where the choice is the best shown
    why: str = ""


class Decider:
    """Asks a policy and explains its choice. An answer that is not valid is replaced by that of its guide.

    Args:
        policy: any policy that was trained for, or knows, market worlds.
        window: needs shown at once (J).
        components: names of the policy's value components.
        rules: of the guards; None: the defaults.
    """

    def __init__(
        self,
        policy: Policy,
        window: int = WINDOW,
        components: Sequence[str] = (),
        rules: GuardRules | None = None,
    ) -> None:
        self.policy, self.window = policy, window
        self.components = tuple(components)
        self.invalid: Counter[tuple[str, str]] = Counter()
        self._rules = GuardsConfig().rules() if rules is None else rules
        # The first snapshot loads compiled code, which takes a second: not in a pass that others wait for.
        observe(snapshot_of((), (), {}, Occupancy()), (), window, self._rules)

    def policy_for(self, need: Need) -> Policy:
        """Policy for a task, where there is one for each kind."""
        if not isinstance(self.policy, ByKind):
            return self.policy
        return self.policy.federated if need.kind == "federated" else self.policy.others

    def decide(self, snapshot: Snapshot, needs: Sequence[Need], offers: Sequence[Offer]) -> Decision:
        """The decision about one of the first `window` needs, of which there is one at least.

        `needs` by arrival, `offers` as the clusters: both in the order of the snapshot.
        """
        observed = observe(snapshot, needs, self.window, self._rules)
        observation = observed.observation
        n_offers, invalid = len(offers), None
        try:
            action = valid_answer(self.policy, observation)
            row, place = divmod(action, n_offers + 1)
            policy = self.policy_for(needs[row])
            table = self._values(policy, observation, row)
        except InvalidAnswerError as error:
            policy = self.policy_for(needs[0])
            invalid = Invalid(error.fault, str(error))
            self.invalid[policy.name, error.fault] += 1
            row, place = divmod(guided(observation), n_offers + 1)
            table = {}, None
        candidates = self._candidates(observation, row, needs[row], offers, table)
        chosen = None if place == n_offers else offers[place].offer_id
        # What the policy takes comes first, whatever the totals say: shortlists and margins count.
        ranked = sorted(candidates, key=lambda item: (item.offer_id != chosen, *_rank(item)))
        shown = observed.row(row)
        gives_way = policy.name == GUIDE or isinstance(policy, MTDQNPolicy)
        why = "" if invalid is not None else _why(policy.name, ranked, gives_way)
        return Decision(
            policy.name, needs[row], chosen, tuple(ranked), shown, observed.lost[row], invalid, why
        )

    def _candidates(
        self, observation: Observation, row: int, need: Need, offers: Sequence[Offer], table: Table
    ) -> list[Candidate]:
        mask = self._mask_of(observation, row)
        values, totals = table
        appraisal = appraise(self._alone(observation, row), 1)
        found = []
        for k, offer in enumerate([*offers, None]):
            pair = None if offer is None else observation["pairs"][row, k]
            valid = bool(mask[k])
            found.append(
                Candidate(
                    offer_id=None if offer is None else offer.offer_id,
                    valid=valid,
                    reason="" if valid else _reason(need, offer, pair),
                    gives_way=bool(appraisal.gives_way[0, 0, k]),
                    total=float(totals[k])
                    if valid and totals is not None and np.isfinite(totals[k])
                    else None,
                    values={name: float(x[k]) for name, x in values.items() if np.isfinite(x[k])},
                    expected_usd=float(appraisal.usd[0, 0, k]),
                    price_usd_hour=0.0 if offer is None else offer.price_usd_hour * need.resources.instances,
                    finish_s=0.0 if pair is None else float(pair[col.FINISH_S]),
                    risk=float(appraisal.risk[0, 0, k]),
                    cost_usd=0.0 if pair is None else float(pair[col.COST_USD]),
                    region="" if offer is None else offer.region,
                    egress_usd=0.0
                    if offer is None or offer.offer_id == need.here
                    else need.egress_usd(offer),
                )
            )
        return found

    def _values(self, policy: Policy, observation: Observation, row: int) -> Table:
        """Values by component, and the totals; empty for policies without value components.

        Raises InvalidAnswerError if the policy raises, or decides by values or weights that are not finite.
        """
        if not isinstance(policy, WeighedPolicy):
            return {}, None
        if isinstance(policy, MTDQNPolicy):
            require_finite(policy.network.vector, np.asarray(policy.value_weights))
        try:
            table = self._table(policy, observation, row)
            total = table @ np.asarray(policy.value_weights)
        except Exception as error:
            raise raised(error) from error
        weighed = ~np.isnan(table).all(1) & (self._mask_of(observation, row) != 0)
        if not weighed.any():  # there was nothing to weigh
            return {}, None
        require_finite(table[weighed], total[weighed])
        if len(self.components) != table.shape[1]:
            return {}, total  # the network learned the weighed value itself
        return {name: table[:, k] for k, name in enumerate(self.components)}, total

    def _table(self, policy: WeighedPolicy, observation: Observation, row: int) -> NDArray[np.float64]:
        """(C + 1, K) components of one task's choices."""
        if isinstance(policy, MTDQNPolicy):  # it looks at one task, and sees how many others wait
            whole = {name: np.asarray(array)[None] for name, array in observation.items()}
            table = policy.value_table(cast(Observation, whole))[:, row]
        else:
            table = policy.value_table(self._alone(observation, row))[:, 0]
        return table.reshape(-1, table.shape[-1])

    def _alone(self, observation: Observation, row: int) -> Observation:
        """A batch of one with only this row of the window: values of a task do not depend on other rows."""
        return {
            "clusters": observation["clusters"][None],
            "occupation": observation["occupation"][None],
            "jobs": observation["jobs"][None, row : row + 1],
            "pairs": observation["pairs"][None, row : row + 1],
            "action_mask": self._mask_of(observation, row)[None],
        }

    def _mask_of(self, observation: Observation, row: int) -> MaskArray:
        """(C + 1,) of one row of the window."""
        mask: MaskArray = observation["action_mask"].reshape(self.window, -1)[row]
        return mask


def _rank(item: Candidate) -> tuple[bool, float]:
    return not item.valid, item.expected_usd if item.total is None else -item.total


def _why(policy: str, ranked: Sequence[Candidate], gives_way: bool) -> str:
    """What decided, where another candidate looks better. The first candidate is the chosen one.

    `gives_way`: the policy is `expected_cost` or corrects it.
    """
    taken, *others = ranked
    valid = [item for item in others if item.valid]
    for item in valid if gives_way else ():
        if item.gives_way and item.total is None and item.expected_usd < taken.expected_usd:
            return f"{_name(item)} is cheaper, but left to tasks that lose more by waiting"
    if taken.total is None:
        cheaper = min(valid, key=lambda item: item.expected_usd, default=taken)
        if _shown(cheaper.expected_usd) >= _shown(taken.expected_usd):
            return ""
        return f"{policy} goes by its own order, not by expected USD ({_name(cheaper)} is cheaper)"
    best = max(valid, key=_total, default=taken)
    if _shown(_total(best)) <= _shown(taken.total):
        return ""
    return (
        f"{_name(best)} looks better by {_total(best) - taken.total:.2g}: less than the margin or the doubt "
        f"of {policy}"
    )


def _total(item: Candidate) -> float:
    return -math.inf if item.total is None else item.total


def _shown(number: float) -> float:
    """Round as `explain` does: a difference that is not visible needs no explanation."""
    return float(f"{number:.3g}")


def _name(item: Candidate) -> str:
    return item.offer_id or "none for now"


def _reason(need: Need, offer: Offer | None, pair: FloatArray | None) -> str:
    if offer is None:
        return "the task must be decided now"
    refusal = need.refusal(offer)
    if refusal is not None:
        return refusal
    if need.here == offer.offer_id:
        return "it is there already"
    if not offer.available:
        return offer.reason or "not available now"
    assert pair is not None
    free = max(0, int(pair[col.FREE]))
    return f"{free} of {offer.quota} instances are free, the job needs {need.resources.instances}"


def appraised_usd(need: Need, view: View) -> dict[str | None, float]:
    """Expected USD of each choice until the task's end (of a federated client: until it has delivered next).

    Returns USD by offer id, and for None ("none for now"); within +-10,000, by the rule `expected_cost`. What
    cannot be had now is appraised as if it could.
    """
    observation = encode(view.snapshot([need]), 1)
    batch = {name: np.asarray(array)[None] for name, array in observation.items()}
    usd = appraise(cast(Observation, batch), 1).usd[0, 0]
    return {place: float(usd[k]) for k, place in enumerate([*(one.offer_id for one in view.offers), None])}


# The policies of a deployment, by the names of its configuration: rules, released policies, files.


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
