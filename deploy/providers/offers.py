"""What offers of clouds are made of: the hardware of types, price lists, and our own record of capacity."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, TypeVar

from pydantic import BaseModel, ConfigDict, Field, PositiveInt, ValidationError, model_validator

from spotweave.deploy.providers.base import ProviderError
from spotweave.deploy.yamlfile import ConfigError, NotNegative, Part, Positive, terse_mistake
from spotweave.files import write_private

Price = Positive
_ListT = TypeVar("_ListT", bound=Part)


class CatalogueError(ConfigError):
    """A price list cannot be used, or does not have it; one line."""


class Hardware(Part):
    """What an instance of a type has; shared-core types of Google Cloud count as one virtual core."""

    vcpus: PositiveInt
    memory_gib: Price
    gpu: str | None = None
    gpus: Annotated[int, Field(ge=0)] = 0
    gpu_memory_gib: NotNegative = 0.0  # of each

    @model_validator(mode="after")
    def _counted(self) -> Hardware:
        if (self.gpu is None) != (self.gpus == 0):
            raise ValueError(f"gpu is {self.gpu!r} and gpus is {self.gpus}: give both, or none of them")
        return self


def load_list(kind: type[_ListT], path: Path) -> _ListT:
    """Read a price list from a JSON file. Raises CatalogueError."""
    try:
        return kind.model_validate_json(path.read_bytes())
    except OSError as error:
        raise CatalogueError(f"cannot read {path}: {error.strerror}") from error
    except ValidationError as error:
        raise CatalogueError(f"{path}: {terse_mistake(error)}") from error


# What we ourselves have seen of capacity: clouds publish prices, not availability.
#
# An offer counts as down from a refused launch or an interruption until its cool-down ends, and otherwise as
# up, whether or not a launch is tried. So `up_ratio` is an upper bound, and 1 where no launch was refused.

_DAY_S = 86_400.0
_WEEK_S = 7 * _DAY_S


class _Spells(BaseModel):
    """One offer's record: since when it is kept, its down-spells (start, end), refusals in a row."""

    model_config = ConfigDict(extra="forbid")

    since_s: float
    downs: list[tuple[float, float]] = Field(default_factory=list)
    strikes: int = 0
    reason: str = ""


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid")

    offers: dict[str, _Spells] = Field(default_factory=dict)


@dataclass(frozen=True)
class History:
    """What was seen of an offer until a moment; as in `Offer`."""

    up_ratio: float
    spell_s: float
    mean_up_s: float


class Availability:
    """The record of all offers, kept in a file (None: nowhere). Safe to use from several threads.

    The cool-down doubles with each further refusal in a row, up to `most_s`. Raises ProviderError if the file
    cannot be used.
    """

    def __init__(self, path: Path | None, cool_down_s: float, most_s: float) -> None:
        self._path, self._cool_down_s, self._most_s = path, cool_down_s, most_s
        self._lock = threading.Lock()
        self._held: dict[str, tuple[float, str]] = {}
        self._file = _File()
        if path is None:
            return
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            if path.exists():
                self._file = _File.model_validate_json(path.read_bytes())
        except (OSError, ValidationError) as error:
            raise ProviderError(f"{path} cannot be used: delete or restore it") from error

    def down(self, offer_id: str, now_s: float, reason: str) -> float:
        """Note a refusal or interruption. Returns the end of the back-off (epoch seconds)."""
        with self._lock:
            spells = self._spells(offer_id, now_s)
            until_s = now_s + min(self._most_s, self._cool_down_s * 2.0 ** min(20, spells.strikes))
            spells.strikes += 1
            spells.reason = reason
            if spells.downs and spells.downs[-1][1] >= now_s:
                start_s, end_s = spells.downs.pop()
                spells.downs.append((start_s, max(end_s, until_s)))
            else:
                spells.downs.append((now_s, until_s))
            while spells.downs[0][1] <= now_s - _WEEK_S:
                spells.since_s = spells.downs.pop(0)[1]
            self._save()
            return until_s

    def up(self, offer_id: str, now_s: float) -> None:
        """Note a successful launch."""
        with self._lock:
            spells = self._spells(offer_id, now_s)
            if spells.downs and spells.downs[-1][1] > now_s:
                start_s, _ = spells.downs.pop()
                spells.downs.append((start_s, now_s))
            elif not spells.strikes:
                return
            spells.strikes, spells.reason = 0, ""
            self._save()

    def hold(self, offer_id: str, until_s: float, reason: str) -> None:
        """Leave it alone until then: a full quota says nothing of capacity, and is in no record."""
        with self._lock:
            self._held[offer_id] = (until_s, reason)

    def release(self) -> None:
        """Something was ended: quotas may have room again."""
        with self._lock:
            self._held.clear()

    def left_alone(self, offer_id: str, now_s: float) -> str:
        """Why it is left alone and until when, for people; "" if it is not."""
        with self._lock:
            until_s, reason = self._held.get(offer_id, (0.0, ""))
            spells = self._spells(offer_id, now_s)
            if spells.downs and spells.downs[-1][1] > now_s:
                until_s, reason = spells.downs[-1][1], spells.reason
        if until_s <= now_s:
            return ""
        return f"left alone until {datetime.fromtimestamp(until_s, UTC):%H:%M:%S} UTC: {reason}"

    def history(self, offer_id: str, now_s: float) -> History:
        """Availability in the latest day and week."""
        with self._lock:
            spells = self._spells(offer_id, now_s)
            since_s = max(spells.since_s, now_s - _DAY_S)
            down_s = sum(
                max(0.0, min(end_s, now_s) - max(start_s, since_s)) for start_s, end_s in spells.downs
            )
            changes = [spells.since_s, *(moment for spell in spells.downs for moment in spell)]
            ups = [
                start_s - before_s
                for before_s, start_s in zip(changes[::2], changes[1::2], strict=False)
                if start_s > before_s
            ]
            return History(
                up_ratio=1.0 if now_s <= since_s else min(1.0, max(0.0, 1.0 - down_s / (now_s - since_s))),
                spell_s=max(0.0, now_s - max(moment for moment in changes if moment <= now_s)),
                mean_up_s=sum(ups) / len(ups) if ups else 0.0,
            )

    def _spells(self, offer_id: str, now_s: float) -> _Spells:
        found = self._file.offers.get(offer_id)
        if found is None or found.since_s > now_s:
            # A record from the future (a clock that was set back) says nothing.
            found = self._file.offers[offer_id] = _Spells(since_s=now_s)
        return found

    def _save(self) -> None:
        if self._path is None:
            return
        try:
            write_private(self._path, self._file.model_dump_json())
        except OSError as error:
            raise ProviderError(f"cannot write {self._path}: {error.strerror}") from error
