"""How the updates of a federated training become its next model: the `strategy` of a Flower job."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field, FiniteFloat

from spotweave.agents.federated.asynchronous.brokers import LARGEST_WEIGHT
from spotweave.agents.federated.asynchronous.fed_suda import ShadowSelection, slow_participants
from spotweave.documents import StrictModel

MOST_BROKERS = 8
MOST_SAMPLES = 10**9
_MOST_UPDATES = 1000


class FedAvg(StrictModel):
    """Synchronous rounds (McMahan 2017), or the ServerApp's own strategy."""

    kind: Literal["fedavg"] = "fedavg"
    clip_norm: Annotated[FiniteFloat, Field(gt=0)] | None = None
    """Scales longer updates (L2 norm of the change in weights) down to this."""


class _Asynchronous(StrictModel):
    staleness_most: Annotated[int, Field(ge=0, le=100_000)] = 100
    """T: discards updates older than this many versions of the model."""


class FedAsync(_Asynchronous):
    """Each update is mixed into the model as it comes (Xie 2019, Algorithm 1, polynomial staleness)."""

    kind: Literal["fed_async"]
    mixing: Annotated[FiniteFloat, Field(gt=0, lt=1)] = 0.6
    """α: a client's model is mixed in with weight α (s + 2)^-a at staleness s."""
    staleness_exponent: Annotated[FiniteFloat, Field(ge=0, le=10)] = 0.5
    """a; 0 ignores staleness."""


class _Buffered(_Asynchronous):
    updates_per_round: Annotated[int, Field(gt=0, le=_MOST_UPDATES)]
    """W, M_L: updates that make the next version."""
    server_rate: Annotated[FiniteFloat, Field(gt=0, le=1000)] = 1.0
    """η: step along the weighted mean of the updates."""


class HpAsgd(_Buffered):
    """Buffered asynchronous SGD whose updates are scaled by p_n / fre_n (Liu 2022, Algorithm 7)."""

    kind: Literal["hp_asgd"]


class _Brokered(_Buffered):
    updates_per_round: Annotated[int, Field(ge=2, le=_MOST_UPDATES)]
    """W: updates that make the next version. The server sees their sum only."""
    brokers: Annotated[int, Field(ge=2, le=MOST_BROKERS)] = 2
    """B: brokers, hence shards of an update."""


class HaleFed(_Brokered):
    """Asynchronous difference averaging over brokers: the server sees sums (Liu 2022, Eq. 6.1 and 6.3)."""

    kind: Literal["hale_fed"]


class FedSuda(_Brokered):
    """HALE-Fed with shadow updates of slow clients (Liu 2022, Algorithms 4 to 6)."""

    kind: Literal["fed_suda"]
    slow_factor: Annotated[FiniteFloat, Field(ge=1, le=1e6)]
    """L: clients that deliver at most L times as often as the slowest, by `epoch_s`, are slow: their latest
    update is used again until a newer one comes."""


Strategy = Annotated[FedAvg | FedAsync | HpAsgd | HaleFed | FedSuda, Field(discriminator="kind")]


def check(strategy: Strategy, samples: Mapping[str, int], epochs_s: Mapping[str, float | None]) -> None:
    """Refuse a strategy that these clients cannot follow.

    Args:
        strategy: of the job.
        samples: by client.
        epochs_s: expected seconds of each one's part of a round; None: not known.

    Raises:
        ValueError: one line.
    """
    if not isinstance(strategy, HaleFed | FedSuda):
        return
    most = strategy.updates_per_round * max(samples.values())
    if most > LARGEST_WEIGHT:
        raise ValueError(
            f"strategy: {strategy.updates_per_round} updates of up to {max(samples.values())} samples are "
            f"{most} in one sum: brokers add up to {LARGEST_WEIGHT}; count samples in a larger unit"
        )
    if isinstance(strategy, FedSuda):
        try:
            selection(strategy, epochs_s)
        except ValueError as error:
            raise ValueError(f"strategy fed_suda: {error}") from error


def selection(strategy: FedSuda, epochs_s: Mapping[str, float | None]) -> ShadowSelection:
    """Select the stragglers and the participants of each round.

    Args:
        strategy: of the job.
        epochs_s: expected seconds of each client's part of a round, by name.

    Raises:
        ValueError: if that cannot be; one line.
    """
    for name, epoch_s in epochs_s.items():
        if epoch_s is None:
            raise ValueError(f"it needs to know who is slow: give epoch_s of client {name!r}, or of all")
    slow = slow_participants([epoch_s or 0.0 for epoch_s in epochs_s.values()], strategy.slow_factor)
    if len(slow) == len(epochs_s):
        raise ValueError(
            f"with slow_factor {strategy.slow_factor:g} all clients are slow by their epoch_s, and nobody "
            "would have to send anything new: lower it, or use hale_fed"
        )
    regular, needed = len(epochs_s) - len(slow), strategy.updates_per_round
    if len(epochs_s) % needed or regular * needed % len(epochs_s):
        raise ValueError(
            f"{needed} updates_per_round of {regular} regular and {len(slow)} slow clients: expected a "
            "number with which every round of an episode takes as many of each"
        )
    return ShadowSelection(len(epochs_s), slow, strategy.updates_per_round, strategy.staleness_most)
