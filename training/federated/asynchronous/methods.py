"""The aggregator that a scenario's method names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from agents.federated.asynchronous.aggregator import Aggregator, Vector
from agents.federated.asynchronous.averaging import AsynDA, AsynMA, FedAsync, FedAvg, FedBuff
from agents.federated.asynchronous.fed_suda import FedSuda, ShadowSelection
from agents.federated.asynchronous.hale_fed import HaleFed
from agents.federated.asynchronous.hp_asgd import HpAsgd
from training.federated.asynchronous.scenario import Method, Scenario

BROKERS = 2
"""The thesis's experiments have two."""


def make_aggregator(
    scenario: Scenario, method: Method, model: Vector, samples: Sequence[int], generator: np.random.Generator
) -> Aggregator[Any]:
    """The aggregator of a method.

    Args:
        scenario: for what the method does not set itself.
        method: which, with its parameters.
        model: (d,) initial weights.
        samples: images of each participant.
        generator: of the aggregator's own draws.

    Raises:
        UpdateError: for parameters that do not fit.
    """
    needed = method.round_updates or scenario.round_updates
    match method.algorithm:
        case "fed_avg":
            return FedAvg(model, scenario.participants, needed, generator, method.uploads, method.rate)
        case "asyn_da":
            return AsynDA(model, needed, method.uploads, method.rate)
        case "asyn_ma":
            return AsynMA(model, needed)
        case "hale_fed":
            return HaleFed(model, needed, BROKERS, method.rate)
        case "fed_suda":
            assert method.staleness_bound is not None, "a Method of Fed-SUDA has one"
            bound = method.staleness_bound
            selection = ShadowSelection(scenario.participants, scenario.slow, needed, bound)
            return FedSuda(model, selection, method.rate)
        case "hp_asgd":
            return HpAsgd(
                model,
                samples,
                needed,
                method.rate,
                generator,
                method.staleness_bound,
                method.at_once,
            )
        case "fed_buff":
            return FedBuff(model, needed, method.rate)
        case "fed_async":
            return FedAsync(model, method.mixing)
