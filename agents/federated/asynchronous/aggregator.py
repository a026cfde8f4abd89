"""What every aggregator does: invite participants, take their updates, make the next model."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, Literal, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

# What a participant sends: its update of the model, and the version of the model it began with.

Vector = NDArray[np.floating]  # all weights of a model in one row, (d,)


class UpdateError(ValueError):
    """An update, a shard or a setting that cannot be used; the message is one line."""


class UpdateId(NamedTuple):
    """Which update: the pair (p_i, r_alpha) of Liu 2022, "System Operation" of chapter 6."""

    participant: int  # who computed it
    base_version: int  # number of the model that it was computed from
    # tells apart what a participant computed twice from one model; shards of the one and of the other do not
    # sum to either
    number: int = 0


@dataclass(frozen=True)
class Update:
    """One participant's contribution."""

    participant: int  # who computed it
    base_version: int  # number of the model that it was computed from
    # (d,) a difference of weights, a gradient, or a whole model: what the aggregator `uploads`
    values: Vector
    samples: int = 1  # how many samples the participant holds; its weight p_n is in proportion
    number: int = 0  # see UpdateId

    @property
    def id(self) -> UpdateId:
        """The participant, the version that it started from, and its number: no two updates share them."""
        return UpdateId(self.participant, self.base_version, self.number)


def check_update(update: Update, model: Vector, version: int) -> None:
    """Refuse what would spoil the model.

    Raises:
        UpdateError: for another shape, NaN or infinity, no samples, or a model that does not exist yet.
    """
    who = f"update of participant {update.participant}"
    if update.values.shape != model.shape:
        raise UpdateError(
            f"{who} has shape {update.values.shape}: expected {model.shape}, the shape of the model"
        )
    if not np.isfinite(update.values).all():
        raise UpdateError(f"{who} holds NaN or infinity: expected finite numbers; lower its learning rate")
    if update.samples < 1:
        raise UpdateError(f"{who} counts {update.samples} samples: expected at least 1")
    if not 0 <= update.base_version <= version:
        raise UpdateError(
            f"{who} is based on model {update.base_version}: expected one of 0 to {version}, which exist"
        )


def weighted_mean(updates: Iterable[Update]) -> Vector:
    """The mean of updates by samples, sum(p_i D_i) / sum(p_i), (d,)."""
    chosen = list(updates)
    samples = np.array([update.samples for update in chosen], dtype=float)
    stacked = np.stack([update.values for update in chosen])
    mean: Vector = np.tensordot(samples / samples.sum(), stacked, axes=1)
    return mean


Uploads = Literal["difference", "gradient", "model"]
"""What participants send: M_K - M_0 after K local steps, one gradient, or the whole local model M_K."""


Stored = TypeVar("Stored", Update, UpdateId)
"""What a round is made of: updates, or only their ids where no single update may be seen."""


class Invitation(NamedTuple):
    """The current model goes to a participant."""

    participant: int  # who computes an update of it
    version: int  # number of the model
    # factor that the participant multiplies its gradient with (p_n / fre_n in HP-ASGD, else 1)
    scale: float = 1.0


class Need(NamedTuple):
    """What the next model waits for."""

    participants: tuple[int, ...] | None  # whose updates; None: anybody's
    updates: int  # how many more of them


class Round(NamedTuple):
    """A new model was made."""

    version: int  # its number
    used: tuple[UpdateId, ...]  # updates that it was made of
    # of each, the versions between the model it was computed from and the one it changed
    staleness: tuple[int, ...]
    fresh: int  # how many of them were used for the first time


class Aggregator(ABC, Generic[Stored]):
    """The server's model and what turns updates into the next one.

    The caller asks `invite` whom to give the model, hands in what comes back by `receive`, and calls
    `advance` until it returns None. Nothing here knows of time or of messages.

    Args:
        model: (d,) initial weights; version 0.
        uploads: what participants send.
        once_per_version: whether a participant gets each model only once, as shards need, which are known by
            their participant and version.
    """

    def __init__(self, model: Vector, uploads: Uploads, *, once_per_version: bool = False) -> None:
        self.model = model.copy()
        self.version = 0
        self.uploads = uploads
        self._once_per_version = once_per_version
        self._given: dict[int, int] = {}

    def invite(self, idle: Sequence[int]) -> list[Invitation]:
        """Which of the idle participants shall compute an update of the current model now: all that may."""
        invited = [
            participant
            for participant in idle
            if not (self._once_per_version and self._given.get(participant) == self.version)
        ]
        self._given.update(dict.fromkeys(invited, self.version))
        return [Invitation(participant, self.version) for participant in invited]

    def receive(self, update: Update) -> None:
        """Store an update. Raises UpdateError if it would spoil the model."""
        check_update(update, self.model, self.version)
        self._store(update)

    def ready(self) -> bool:
        """Whether what is stored makes a new model."""
        return self._choose() is not None

    def advance(self) -> Round | None:
        """Make a new model, if what is stored suffices; None if not."""
        chosen = self._choose()
        if chosen is None:
            return None
        staleness = tuple(self.version - update.base_version for update in chosen)
        self.model = self._next_model(chosen, staleness)
        self.version += 1
        fresh = self._forget(chosen)
        used = tuple(UpdateId(one.participant, one.base_version, one.number) for one in chosen)
        return Round(self.version, used, staleness, fresh)

    @abstractmethod
    def needs(self, *, fresh: bool) -> list[Need]:
        """What the next model waits for; if `fresh`, what it does in a usual round."""

    @abstractmethod
    def _store(self, update: Update) -> None:
        """Keep a checked update."""

    @abstractmethod
    def _choose(self) -> list[Stored] | None:
        """The updates that the next model is made of; None: not enough yet. Changes nothing."""

    @abstractmethod
    def _next_model(self, chosen: Sequence[Stored], staleness: Sequence[int]) -> Vector:
        """The next model, (d,)."""

    @abstractmethod
    def _forget(self, chosen: Sequence[Stored]) -> int:
        """Remove what will not be used again; returns how many were used for the first time."""

    def _stepped(self, mean: Vector, rate: float) -> Vector:
        """The model after a step along a mean difference, or against a mean gradient."""
        step: Vector = (-rate if self.uploads == "gradient" else rate) * mean
        return self.model + step.astype(self.model.dtype)


class BufferedAggregator(Aggregator[Update]):
    """One that uses each update once, when `needed` of them are stored, in the order of arrival.

    Args:
        model: (d,) initial weights.
        uploads: what participants send.
        needed: updates of one round.
    """

    def __init__(self, model: Vector, uploads: Uploads, needed: int) -> None:
        super().__init__(model, uploads)
        at_least("updates per round", needed, 1)
        self._needed = needed
        self._buffer: list[Update] = []

    def needs(self, *, fresh: bool) -> list[Need]:
        """Updates of anybody."""
        return [Need(None, self._needed if fresh else max(0, self._needed - len(self._buffer)))]

    def _store(self, update: Update) -> None:
        self._buffer.append(update)

    def _choose(self) -> list[Update] | None:
        return self._buffer[: self._needed] if len(self._buffer) >= self._needed else None

    def _forget(self, chosen: Sequence[Update]) -> int:
        used = {id(update) for update in chosen}
        self._buffer = [update for update in self._buffer if id(update) not in used]
        return len(chosen)


def at_least(what: str, given: float, least: float) -> None:
    """Refuse a setting that is too small. Raises UpdateError."""
    if not given >= least:
        raise UpdateError(f"{what} is {given:g}: expected at least {least:g}")


def above_zero(what: str, given: float) -> None:
    """Refuse a rate that is not positive. Raises UpdateError."""
    if not given > 0:
        raise UpdateError(f"{what} is {given:g}: expected a number above 0")


def check_members(what: str, members: Iterable[int]) -> frozenset[int]:
    """A set of participants, without repetition or negative numbers. Raises UpdateError."""
    listed = list(members)
    if len(set(listed)) != len(listed) or min(listed, default=0) < 0:
        raise UpdateError(f"{what} are {listed}: expected different numbers of 0 or more")
    return frozenset(listed)


# Averages of models and differences: FedAvg, FedAsync, FedBuff, AsynDA and AsynMA, each with its source.


# AsynDA: asynchronous averaging of differences (Liu 2022, Eq. 6.3), or of gradients (asynchronous SGD).


class AsynDA(BufferedAggregator):
    """The first W updates to arrive make the next model, whoever sent them.

    M_{r+1} = M_r + eta sum(p_i D_i) / sum(p_i), with D_i against the version that participant i began with.

    Args:
        model: (d,) initial weights.
        round_updates: W.
        uploads: "difference" or "gradient".
        rate: eta of differences, gamma of gradients.
    """

    def __init__(
        self, model: Vector, round_updates: int, uploads: Uploads = "difference", rate: float = 1.0
    ) -> None:
        super().__init__(model, uploads, round_updates)
        above_zero("rate", rate)
        self._rate = rate

    def _next_model(self, chosen: Sequence[Update], staleness: Sequence[int]) -> Vector:
        return self._stepped(weighted_mean(chosen), self._rate)


# AsynMA: Eq. 6.2 of Liu 2022 used as it stands without synchronisation, which can oscillate (Figure 6.4).


class AsynMA(BufferedAggregator):
    """The mean of the first W local models to arrive replaces the model.

    Args:
        model: (d,) initial weights.
        round_updates: W.
    """

    def __init__(self, model: Vector, round_updates: int) -> None:
        super().__init__(model, "model", round_updates)

    def _next_model(self, chosen: Sequence[Update], staleness: Sequence[int]) -> Vector:
        return weighted_mean(chosen).astype(self.model.dtype)


# FedAsync: every local model is mixed in as it arrives (Xie, Koyejo, Gupta 2019, Algorithm 1).


class FedAsync(BufferedAggregator):
    """x_t = (1 - alpha_t) x_{t-1} + alpha_t x_new, alpha_t = alpha (t - tau + 1)**-a ("polynomial").

    Args:
        model: (d,) initial weights.
        mixing: alpha, in (0, 1].
        exponent: a; 0 mixes alike whatever the staleness.
    """

    def __init__(self, model: Vector, mixing: float = 0.6, exponent: float = 0.5) -> None:
        super().__init__(model, "model", 1)
        if not 0 < mixing <= 1:
            raise UpdateError(f"mixing weight alpha is {mixing:g}: expected more than 0 and at most 1")
        at_least("exponent a", exponent, 0)
        self._mixing = mixing
        self._exponent = exponent

    def _next_model(self, chosen: Sequence[Update], staleness: Sequence[int]) -> Vector:
        # t is the number of the new model, so t - tau is 1 for an update of the current one.
        weight = self._mixing * (2.0 + staleness[0]) ** -self._exponent
        mixed: Vector = (1.0 - weight) * self.model + weight * chosen[0].values
        return mixed.astype(self.model.dtype)


# FedBuff: buffered asynchronous aggregation (Nguyen et al., AISTATS 2022, Algorithm 1).


class FedBuff(BufferedAggregator):
    """w += eta_g / K sum_i s(tau_i) D_i with s(tau) = 1 / sqrt(1 + tau), once K differences are stored.

    Args:
        model: (d,) initial weights.
        round_updates: K, the size of the buffer.
        rate: eta_g.
    """

    def __init__(self, model: Vector, round_updates: int, rate: float = 1.0) -> None:
        super().__init__(model, "difference", round_updates)
        above_zero("rate", rate)
        self._rate = rate

    def _next_model(self, chosen: Sequence[Update], staleness: Sequence[int]) -> Vector:
        scales = 1.0 / np.sqrt(1.0 + np.asarray(staleness, dtype=float))
        total: Vector = np.tensordot(scales, np.stack([update.values for update in chosen]), axes=1)
        return self._stepped(total / len(chosen), self._rate)


# FedAvg: synchronous rounds of W participants (McMahan et al. 2017; Eq. 6.2 of Liu 2022).


class FedAvg(BufferedAggregator):
    """Draws W participants, waits for all of them, averages. With gradients: synchronous SGD.

    With differences and a rate of 1 the mean of the local models is the model plus the mean difference, as
    all have the same base.

    Args:
        model: (d,) initial weights.
        participants: N.
        round_updates: W, drawn uniformly without replacement for each round.
        generator: of the draws.
        uploads: "difference" or "gradient".
        rate: eta of differences, gamma of gradients.
    """

    def __init__(
        self,
        model: Vector,
        participants: int,
        round_updates: int,
        generator: np.random.Generator,
        uploads: Uploads = "difference",
        rate: float = 1.0,
    ) -> None:
        super().__init__(model, uploads, round_updates)
        if round_updates > participants:
            raise UpdateError(
                f"{round_updates} updates per round: expected at most {participants}, as many as participants"
            )
        above_zero("rate", rate)
        self._participants = participants
        self._generator = generator
        self._rate = rate
        self._invited_for = -1

    def invite(self, idle: Sequence[int]) -> list[Invitation]:
        """The participants drawn at the start of a round; none until it ends."""
        if self._invited_for == self.version:
            return []
        self._invited_for = self.version
        drawn = self._generator.choice(self._participants, self._needed, replace=False)
        return [Invitation(int(participant), self.version) for participant in drawn]

    def _next_model(self, chosen: Sequence[Update], staleness: Sequence[int]) -> Vector:
        return self._stepped(weighted_mean(chosen), self._rate)
