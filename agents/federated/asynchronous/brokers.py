"""A broker of HALE-Fed: the shards it holds, and what it adds up when all brokers have confirmed a list.

A state machine without messages: the live side brings the shards and the lists (Algorithm 5 of Liu 2022 and
"Communication Failure Dealing Mechanism" of chapter 6). The brokers are honest but curious.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from spotweave.agents.federated.asynchronous.aggregator import (
    Aggregator,
    Need,
    Update,
    UpdateError,
    UpdateId,
    Vector,
    above_zero,
    at_least,
)

if TYPE_CHECKING:
    from spotweave.envs.simulation.series import Floats


class Confirmation(NamedTuple):
    """What the brokers agree on."""

    confirmed: list[UpdateId]  # updates of which every broker holds its shard, in the order proposed
    # proposed updates of which a shard is missing somewhere: every broker discards them
    incomplete: list[UpdateId]


class Component(NamedTuple):
    """C_j of Eq. 6.1, not yet divided by the weights."""

    values: RingVector  # (d,) uint64, the sum of this broker's shards by samples, modulo 2**64
    samples: int  # the sum of the weights, the same at every broker


class Broker:
    """The shard buffer of broker `number`.

    Args:
        number: gamma, 0 to B - 1.
        size: d, weights of the model.
        staleness_bound: T; a shard more versions behind the current model is refused, and removed.
    """

    def __init__(self, number: int, size: int, staleness_bound: int) -> None:
        if staleness_bound < 0:
            raise UpdateError(f"staleness bound T = {staleness_bound}: expected 0 or more")
        self.number = number
        self.version = 0
        self._size = size
        self._bound = staleness_bound
        self._held: dict[UpdateId, Shard] = {}
        # Ids stay here until their base is too old to be accepted anyway: the memory is bounded by T.
        self._settled: set[UpdateId] = set()

    @property
    def held(self) -> list[UpdateId]:
        """The updates whose shard is here, the first to arrive first."""
        return list(self._held)

    @property
    def settled(self) -> set[UpdateId]:
        """Updates that were used or discarded, as far as they are not too old anyway."""
        return set(self._settled)

    def receive(self, shard: Shard, sender: int) -> None:
        """Store a shard.

        Args:
            shard: what arrived.
            sender: the participant that the connection was authenticated as.

        Raises:
            UpdateError: if it is forged, for another broker, of another shape, replayed or decayed.
        """
        what = f"shard {(shard.participant, shard.base_version, shard.broker)}"
        if shard.participant != sender:
            raise UpdateError(f"{what} was sent by participant {sender}: expected its own shards only")
        if shard.broker != self.number:
            raise UpdateError(f"{what} is not for broker {self.number}: send it to broker {shard.broker}")
        if shard.values.shape != (self._size,) or shard.values.dtype != np.uint64:
            raise UpdateError(
                f"{what} holds {shard.values.dtype} {shard.values.shape}: expected uint64 ({self._size},)"
            )
        if shard.samples < 1:
            raise UpdateError(f"{what} counts {shard.samples} samples: expected at least 1")
        if not 0 <= shard.base_version <= self.version:
            raise UpdateError(f"{what} names a model that does not exist: the newest is {self.version}")
        if self.version - shard.base_version > self._bound:
            raise UpdateError(
                f"{what} is {self.version - shard.base_version} versions old: expected at most "
                f"T = {self._bound}; ask for the current model"
            )
        if shard.id in self._held or shard.id in self._settled:
            raise UpdateError(f"{what} was received before: expected each update once")
        self._held[shard.id] = shard

    def component(self, confirmed: Sequence[UpdateId]) -> Component:
        """The weighted sum of this broker's shards of a confirmed list.

        Raises:
            UpdateError: if the list is empty, names one twice, or one that is not here.
        """
        if len(set(confirmed)) != len(confirmed):
            raise UpdateError("a confirmed list names an update twice: expected each once")
        if missing := [update for update in confirmed if update not in self._held]:
            raise UpdateError(f"broker {self.number} holds no shard of {missing[0]}: confirm the list again")
        shards = [self._held[update] for update in confirmed]
        weights = [shard.samples for shard in shards]
        return Component(ring_sum([shard.values for shard in shards], weights), sum(weights))

    def settle(self, version: int, used: Iterable[UpdateId]) -> list[UpdateId]:
        """After the server's success message: forget what was used and what has decayed beyond T.

        Args:
            version: number of the new model.
            used: updates that will not be used again; shadow updates are not among them.

        Returns:
            The decayed updates.

        Raises:
            UpdateError: if the version goes backwards.
        """
        if version < self.version:
            raise UpdateError(f"model {version} after model {self.version}: expected a newer one")
        self.version = version
        self.discard(used)
        decayed = [update for update in self._held if version - update.base_version > self._bound]
        self.discard(decayed)
        self._settled = {u for u in self._settled if version - u.base_version <= self._bound}
        return decayed

    def discard(self, updates: Iterable[UpdateId]) -> None:
        """Remove updates, held or not; a shard of them that comes later is refused."""
        for update in updates:
            self._held.pop(update, None)
            self._settled.add(update)


def confirm(
    proposed: Sequence[UpdateId], held: Mapping[int, Collection[UpdateId]], brokers: int
) -> Confirmation:
    """Confirm the organiser's list among all brokers.

    Args:
        proposed: the organiser's list.
        held: what each broker holds, by its number.
        brokers: B.

    Raises:
        UpdateError: if a broker has not answered.
    """
    if set(held) != set(range(brokers)):
        raise UpdateError(
            f"brokers {sorted(held)} have answered: expected all of 0 to {brokers - 1} before a list is used"
        )
    everywhere = set(proposed).intersection(*held.values())
    return Confirmation(
        [update for update in proposed if update in everywhere],
        [update for update in proposed if update not in everywhere],
    )


UNBOUNDED = np.iinfo(np.int64).max  # a staleness bound for none: chapter 6 gives HALE-Fed alone none


class HaleFed(Aggregator[UpdateId]):
    """AsynDA with all its brokers in one place: what arrives is split at once, only sums are put together.

    Live, the participant splits and the brokers are elsewhere; the shards and the broker are the same.

    Args:
        model: (d,) initial weights.
        round_updates: W.
        brokers: B, two or more.
        rate: eta.
        staleness_bound: T.
    """

    def __init__(
        self,
        model: Vector,
        round_updates: int,
        brokers: int = 2,
        rate: float = 1.0,
        staleness_bound: int = UNBOUNDED,
    ) -> None:
        super().__init__(model, "difference", once_per_version=True)
        at_least("brokers", brokers, 2)
        at_least("updates per round", round_updates, 1)
        above_zero("rate", rate)
        self._needed = round_updates
        self._rate = rate
        self._brokers = [Broker(number, model.size, staleness_bound) for number in range(brokers)]

    def needs(self, *, fresh: bool) -> list[Need]:
        """Updates of anybody."""
        return [Need(None, self._needed if fresh else max(0, self._needed - len(self._brokers[0].held)))]

    def _store(self, update: Update) -> None:
        for broker, values in zip(self._brokers, split(update.values, len(self._brokers)), strict=True):
            shard = Shard(update.participant, update.base_version, broker.number, values, update.samples)
            broker.receive(shard, sender=update.participant)

    def _choose(self) -> list[UpdateId] | None:
        proposed = self._brokers[0].held[: self._needed]
        if len(proposed) < self._needed:
            return None
        return confirm(proposed, {b.number: b.held for b in self._brokers}, len(self._brokers)).confirmed

    def _next_model(self, chosen: Sequence[UpdateId], staleness: Sequence[int]) -> Vector:
        components = {broker.number: broker.component(chosen) for broker in self._brokers}
        values = {number: component.values for number, component in components.items()}
        return self._stepped(recover(values, len(self._brokers), components[0].samples), self._rate)

    def _forget(self, chosen: Sequence[UpdateId]) -> int:
        for broker in self._brokers:
            broker.settle(self.version, chosen)
        return len(chosen)


# Updates split into one shard per broker, which sum to the update: Eq. 6.1 of Liu 2022 (HALE-Fed).
#
# D = sum_j S_j with S_j = spl_j + ma_j and sum_j ma_j = 0.
#
# `split` works in the ring of integers modulo 2**64, where a mask can be uniform: any B - 1 shards of an
# update are independent of it, and their sum is exact. `split_floats` has the two kinds of mask that the
# thesis names; floats have no uniform mask, so these hide less and are exact only up to rounding.


RingVector = NDArray[np.uint64]
FloatMask = Literal["positional", "distributional"]

FRACTION_BITS = 32  # values are multiples of 2**-32

LARGEST_VALUE = 2.0**10  # the largest absolute value of a weight that can be encoded

LARGEST_WEIGHT = 2**20
"""The largest sum of weights of one component: 2**(10 + 32 + 20) is less than 2**63, so no sum overflows."""


@dataclass(frozen=True)
class Shard:
    """The part of one update that one broker gets."""

    participant: int  # who computed the update, p_i
    base_version: int  # the model that it was computed from, r_alpha
    broker: int  # who it is for, gamma
    values: RingVector  # (d,) uint64
    samples: int = 1  # the weight of the update
    number: int = 0  # see UpdateId

    @property
    def id(self) -> UpdateId:
        """The update that it is a part of."""
        return UpdateId(self.participant, self.base_version, self.number)


def encode(values: Vector) -> RingVector:
    """(d,) floats as fixed-point numbers modulo 2**64, rounded to 2**-32.

    Raises:
        UpdateError: for NaN or values beyond +-LARGEST_VALUE.
    """
    if not (np.abs(values) <= LARGEST_VALUE).all():
        raise UpdateError(
            f"an update holds NaN or a value beyond {LARGEST_VALUE:g}: shards hold numbers within it; "
            f"lower the learning rate or clip the update"
        )
    fixed = np.rint(np.asarray(values, dtype=np.float64) * 2.0**FRACTION_BITS)
    return fixed.astype(np.int64).view(np.uint64)


def decode(values: RingVector) -> Floats:
    """The floats (d,) that `encode` made fixed-point numbers of."""
    return values.view(np.int64) / 2.0**FRACTION_BITS


def split(values: Vector, brokers: int) -> list[RingVector]:
    """Split an update (d,) into B = `brokers` shards (d,), any B - 1 of them uniform and independent of it.

    The masks come from the operating system's cryptographic generator: a seed would give them away. They have
    no influence on the sum, so a simulation stays repeatable.

    Raises:
        UpdateError: for fewer than two brokers, or what cannot be encoded.
    """
    _check_brokers(brokers)
    encoded = encode(values)
    masks = [
        np.frombuffer(secrets.token_bytes(encoded.nbytes), np.uint64).reshape(encoded.shape)
        for _ in range(brokers - 1)
    ]
    return [*masks, encoded - ring_sum(masks)]


def split_floats(
    values: Vector, brokers: int, generator: np.random.Generator, mask: FloatMask = "positional"
) -> list[Floats]:
    """Split an update (d,) into `brokers` float shards (d,), as the thesis describes in words.

    Every position goes to one broker at random (spl_j), then masks that sum to zero are added. Positional
    masks are normal numbers as large as the update's root mean square, whatever the single values are.
    Distributional masks are the update's own values in another order, so that a shard's values look like
    values of an update but stand in wrong places.

    Args:
        values: the update.
        brokers: two or more.
        generator: of the masks.
        mask: "positional" or "distributional".

    Raises:
        UpdateError: for fewer than two brokers, NaN, or another kind of mask.
    """
    _check_brokers(brokers)
    if mask not in get_args(FloatMask):
        raise UpdateError(f"unknown mask {mask!r}: expected one of {', '.join(get_args(FloatMask))}")
    if not np.isfinite(values).all():
        raise UpdateError("an update holds NaN or infinity: expected finite numbers")
    update = np.asarray(values, dtype=np.float64)
    owner = generator.integers(brokers, size=update.shape)
    if mask == "positional":
        scale = np.sqrt(np.mean(update**2))
        drawn = [scale * generator.standard_normal(update.shape) for _ in range(brokers)]
    else:
        drawn = [generator.permutation(update) for _ in range(brokers)]
    # Each broker adds its own draw and takes away the next one's: around the ring the masks sum to zero.
    return [np.where(owner == j, update, 0.0) + drawn[j] - drawn[(j + 1) % brokers] for j in range(brokers)]


def ring_sum(parts: Sequence[RingVector], weights: Sequence[int] | None = None) -> RingVector:
    """sum_i w_i S_i modulo 2**64, (d,): of all shards of an update the update, of a broker's its component.

    Raises:
        UpdateError: for no parts, weights below 1, or weights whose sum may overflow.
    """
    if not parts:
        raise UpdateError("nothing to sum: expected at least one shard")
    factors = [1] * len(parts) if weights is None else list(weights)
    if min(factors) < 1 or sum(factors) > LARGEST_WEIGHT:
        raise UpdateError(
            f"weights {min(factors)} to {max(factors)} with sum {sum(factors)}: "
            f"expected each at least 1 and their sum at most {LARGEST_WEIGHT}"
        )
    total = np.zeros_like(parts[0])
    for factor, part in zip(factors, parts, strict=True):
        total += np.uint64(factor) * part
    return total


def recover(components: Mapping[int, RingVector], brokers: int, total_weight: int) -> Floats:
    """The weighted mean U of Eq. 6.1, (d,), from the components of all brokers.

    Args:
        components: of each broker, by its number 0 to B - 1.
        brokers: B.
        total_weight: the sum of the weights that the components were made with.

    Raises:
        UpdateError: if a broker's component is missing or has another shape.
    """
    _check_brokers(brokers)
    if set(components) != set(range(brokers)):
        raise UpdateError(
            f"components of brokers {sorted(components)}: expected one of each of 0 to {brokers - 1}; "
            f"without all of them the sum is noise"
        )
    if len({part.shape for part in components.values()}) != 1:
        raise UpdateError("components of different shapes: expected the model's shape from every broker")
    return decode(ring_sum(list(components.values()))) / total_weight


def _check_brokers(brokers: int) -> None:
    if brokers < 2:
        raise UpdateError(f"{brokers} broker(s): expected at least 2, one alone would see every update")
