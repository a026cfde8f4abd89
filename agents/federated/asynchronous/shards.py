"""Updates split into one shard per broker, which sum to the update: Eq. 6.1 of Liu 2022 (HALE-Fed).

D = sum_j S_j with S_j = spl_j + ma_j and sum_j ma_j = 0.

`split` works in the ring of integers modulo 2**64, where a mask can be uniform: any B - 1 shards of an update
are independent of it, and their sum is exact. `split_floats` has the two kinds of mask that the thesis names;
floats have no uniform mask, so these hide less and are exact only up to rounding.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from spotweave.agents.federated.asynchronous.aggregator import UpdateError, UpdateId, Vector

if TYPE_CHECKING:
    from spotweave.envs.simulation.series import Floats

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
