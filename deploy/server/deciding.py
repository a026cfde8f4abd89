"""Decide requests by policies that are shared and never changed."""

from __future__ import annotations

import copy
import json
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from spotweave.agents.networks import WeighedPolicy
from spotweave.deploy.model.instances import Offer
from spotweave.deploy.scheduler.decider import (
    Decider,
    Loaded,
    knows_rounds,
    load_federated_policy,
    load_market_policy,
)
from spotweave.deploy.scheduler.guards import Guards, Standing
from spotweave.deploy.scheduler.needs import Need
from spotweave.deploy.scheduler.snapshot import Occupancy, snapshot_of
from spotweave.deploy.server.schemas import (
    DECISION_EXAMPLE,
    TASK_EXAMPLE,
    CandidateAnswer,
    DecisionAnswer,
    DecisionRequest,
    DecisionResponse,
    TaskFacts,
    TaskName,
    Window,
)
from spotweave.envs.simulation.guards import GuardsConfig

ROUND_WINDOW = 1  # policies for rounds decide one task at a time
ANY_NUMBER = 0  # number of offers of policies that do not depend on it, as requests bring their own offers

Group = Literal["market", "federated"]


class RequestError(ValueError):
    """A request that the loaded policies cannot answer; one line (HTTP 422)."""


@dataclass(frozen=True)
class _Offers:
    offers: Sequence[Offer]
    used: dict[str, int]  # instances by offer id; rises with each decision of the request
    occupancy: Occupancy


class Deciders:
    """The policies of a service. Safe to use from several threads; requests do not influence each other.

    `federated` None: federated tasks are refused.
    """

    def __init__(
        self,
        market: Loaded,
        federated: Loaded | None = None,
        window: int = 8,
        guards: GuardsConfig | None = None,
    ) -> None:
        self.market, self.federated, self._window = market, federated, window
        self._guards = Guards(GuardsConfig() if guards is None else guards)
        # Rules remember things from call to call; value policies do not, and need no turn.
        self._turn = threading.Lock()

    @classmethod
    def load(
        cls,
        market: str,
        federated: str | None = None,
        weights: Sequence[float] | None = None,
        window: int = 8,
        guards: GuardsConfig | None = None,
        strict: bool = True,
    ) -> Deciders:
        """By the names of a deployment's configuration, ready: the first request is not slower than others.

        Raises ValueError (one line) if there is no such policy, it is for another world, or it depends on the
        number of offers.
        """
        own = load_market_policy(market, ANY_NUMBER, weights, strict)
        rounds = None
        if both := federated is not None or knows_rounds(own.policy):
            rounds = load_federated_policy(federated, own, ANY_NUMBER, strict)
        made = cls(own, rounds, window, guards)
        kinds = ["deadline", "federated"] if both else ["deadline"]
        tasks = [{**TASK_EXAMPLE, "kind": kind, "task": kind} for kind in kinds]
        # Compiles what is compiled at first use, and shows now whether the policies can decide.
        made.answer(DecisionRequest.model_validate_json(json.dumps({**DECISION_EXAMPLE, "tasks": tasks})))
        return made

    def answer(self, request: DecisionRequest) -> DecisionResponse:
        """At most one decision of each policy, that of the task which arrived first before the other.

        Raises RequestError if there is no policy for a task, or the weights do not fit the market policy.
        """
        market, weights = self._weighed(request.weights)
        arrived = sorted(request.tasks, key=lambda task: -task.age_s)
        groups: dict[Group, list[TaskFacts]] = {}
        for task in arrived:
            groups.setdefault("federated" if task.kind == "federated" else "market", []).append(task)
        if "federated" in groups and self.federated is None:
            raise RequestError("this service has no policy for federated tasks: leave them out")
        given = _Offers(
            [facts.offer() for facts in request.offers],
            {facts.offer_id: facts.used for facts in request.offers},
            Occupancy.of({facts.offer_id: facts.used_history for facts in request.offers}),
        )
        answers = []
        for group, tasks in groups.items():
            if group == "market":
                answers.append(self._decide(group, market, weights, self._window, tasks, given))
            else:
                assert self.federated is not None
                answers.append(self._decide(group, self.federated, {}, ROUND_WINDOW, tasks, given))
        return DecisionResponse.model_construct(decisions=answers)

    def _decide(
        self,
        group: Group,
        loaded: Loaded,
        weights: Mapping[str, float],
        window: int,
        tasks: Sequence[TaskFacts],
        given: _Offers,
    ) -> DecisionAnswer:
        # Rows beyond the window would be built and thrown away.
        seen = tasks[:window]
        needs = [task.need() for task in seen]
        transfer_s = {
            (task.job_id, offer_id): seconds for task in seen for offer_id, seconds in task.transfer_s.items()
        }
        snapshot = snapshot_of(given.offers, needs, given.used, given.occupancy, transfer_s)
        decider = Decider(loaded.policy, window, loaded.components, rules=self._guards.rules)
        if isinstance(loaded.policy, WeighedPolicy):
            decision = decider.decide(snapshot, needs, given.offers)
        else:
            with self._turn:
                loaded.policy.begin(0, 0)
                decision = decider.decide(snapshot, needs, given.offers)
        need = decision.need
        standing = Standing() if need.running else None
        outcome = self._guards.bound(decision.row, need, decision.offer_id, given.offers, standing=standing)
        goes_to = outcome.offer_id
        if goes_to is not None and goes_to != need.here:
            given.used[goes_to] += need.resources.instances
        return DecisionAnswer.model_construct(
            policy=loaded.policy.name,
            kind=group,
            weights=dict(weights),
            task=_named(need),
            offer_id=goes_to,
            policy_choice=decision.offer_id,
            net=outcome.overruled,
            invalid="" if decision.invalid is None else decision.invalid.words,
            why=decision.why,
            # What it has besides is left out.
            candidates=[
                CandidateAnswer.model_construct(available=one.valid, **vars(one))
                for one in decision.candidates
            ],
            window=Window.model_construct(
                size=window, considered=[_named(one) for one in needs], left_out=len(tasks) - len(seen)
            ),
        )

    def _weighed(self, changes: Mapping[str, float]) -> tuple[Loaded, dict[str, float]]:
        """The market policy with some weights changed, as an object of its own, and the weights in force."""
        policy, components = self.market.policy, self.market.components
        if not isinstance(policy, WeighedPolicy) or len(components) != len(policy.value_weights):
            if changes:
                raise RequestError(
                    f"policy {policy.name} has no value components to weigh: leave the weights out"
                )
            return self.market, {}
        unknown = sorted(set(changes) - set(components))
        if unknown:
            raise RequestError(
                f"there is no value component {unknown[0]!r}: expected some of {', '.join(components)}"
            )
        weights = dict(zip(components, policy.value_weights, strict=True)) | dict(changes)
        if changes:
            # The copy shares the network, which deciding only reads.
            policy = copy.copy(policy)
            policy.set_weights([weights[name] for name in components])
        return Loaded(policy, components, self.market.source), weights


def _named(need: Need) -> TaskName:
    return TaskName.model_construct(job_id=need.key.job_id, task=need.key.task)
