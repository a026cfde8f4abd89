"""What goes wrong on demand: throttling, errors, answers that are lost, launches that fail."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from typing import Annotated, Literal

from pydantic import Field, FiniteFloat

from spotweave.deploy.yamlfile import NotNegative, Part, Positive

_Rate = Annotated[FiniteFloat, Field(ge=0, le=1)]


class CloudError(Exception):
    """A refusal, with a code of the service's documentation and a status of HTTP."""

    def __init__(self, code: str, message: str, status: int = 400) -> None:
        super().__init__(f"{code}: {message}")
        self.code, self.message, self.status = code, message, status


class Spell(Part):
    """A span of time in which some calls get the same wrong answer each time."""

    # what `start_s` and `end_s` count from: 1970, or the emulator's first moment
    since: Literal["epoch", "start"] = "epoch"
    start_s: FiniteFloat = 0.0  # seconds of the emulator's clock
    end_s: float = math.inf  # the first moment at which all is well again
    actions: Annotated[tuple[str, ...], Field(min_length=1)] = ("*",)  # which calls, such as `ec2:*`
    regions: tuple[str, ...] = ()  # where; none: everywhere
    # `empty`: what is described is nothing; `lost`: the call has its effect and its answer never comes; else
    # the code of an error, known to us or not, without effect
    answer: Annotated[str, Field(pattern=r"^[A-Za-z._]+$")]

    def dated(self, origin_s: float) -> Spell:
        """The same in epoch seconds, for an emulator that began then."""
        if self.since == "epoch":
            return self
        times = {"start_s": self.start_s + origin_s, "end_s": self.end_s + origin_s}
        return self.model_copy(update={"since": "epoch", **times})

    def concerns(self, service: str, action: str, region: str, now_s: float) -> bool:
        """Whether the spell affects a call."""
        here = not self.regions or region in self.regions
        return here and self.start_s <= now_s < self.end_s and _matches(self.actions, service, action)


class FaultConfig(Part):
    """Shares and rates; all zero: nothing goes wrong."""

    error: _Rate = 0.0  # share of calls that fail without effect (InternalError, Unavailable)
    lost: _Rate = 0.0  # share of calls that have their effect and whose answer never comes
    launch_failure: _Rate = 0.0  # share of launches that are refused for lack of capacity
    launch_death: _Rate = 0.0  # share of launches that end in `terminated` instead of `running`
    notice_missed: _Rate = 0.0  # share of interruptions without notice
    # each service refills its bucket of requests so fast; None: no throttling
    calls_per_s: Positive | None = None
    burst: Annotated[int, Field(ge=1)] = 100  # size of that bucket
    # an instance is not described for so long after its launch
    describe_delay_s: NotNegative = 0.0
    clock_skew_s: FiniteFloat = 0.0  # the service's clock is so far ahead of the caller's
    actions: tuple[str, ...] = ("*",)  # the actions that `error` and `lost` concern, such as `ec2:*`
    spells: tuple[Spell, ...] = ()  # what goes wrong for a while, every time; `most` does not end them
    # after this many errors, lost answers and failed launches all is well; None: no end
    most: Annotated[int, Field(ge=0)] | None = None


class LostAnswerError(Exception):
    """The call was done, and the caller must never hear of it."""


Failure = Callable[[str, str], CloudError]
"""How one cloud says that something went wrong: from a service, and `throttled`, `internal` (its own fault),
`unavailable`, or the code that a configuration names."""


class Faults:
    """Decides what goes wrong, and counts it by kind. Not for several threads."""

    def __init__(self, config: FaultConfig, seed: int, failure: Failure) -> None:
        self._failure = failure
        self._random = random.Random(f"faults {seed}")
        self._buckets: dict[str, tuple[float, float]] = {}
        self.counts: Counter[str] = Counter()
        self._struck = 0
        self.config = config

    def change(self, config: FaultConfig) -> None:
        """Replace the configuration of faults."""
        self.config, self._struck = config, 0

    def strikes(self, kind: str, rate: float) -> bool:
        """Whether a fault of this kind, which happens at this rate, happens now."""
        most = self.config.most
        if rate <= 0 or (most is not None and self._struck >= most) or self._random.random() >= rate:
            return False
        self._struck += 1
        self.counts[kind] += 1
        return True

    def throttle(self, service: str, now_s: float) -> None:
        """Take a request out of the service's bucket. Raises CloudError if it is empty."""
        rate = self.config.calls_per_s
        if rate is None:
            return
        level, since_s = self._buckets.get(service, (float(self.config.burst), now_s))
        level = min(float(self.config.burst), level + max(0.0, now_s - since_s) * rate)
        if level < 1.0:
            self._buckets[service] = (level, now_s)
            self.counts["throttled"] += 1
            raise self._failure(service, "throttled")
        self._buckets[service] = (level - 1.0, now_s)

    def before(self, service: str, action: str, region: str, now_s: float) -> str:
        """Fail without effect. Returns the spell that its answer is under; "" for none. Raises CloudError."""
        for spell in self.config.spells:
            if not spell.concerns(service, action, region, now_s):
                continue
            self.counts[spell.answer] += 1
            if spell.answer in ("empty", "lost"):
                return spell.answer
            raise self._failure(service, spell.answer)
        if _matches(self.config.actions, service, action) and self.strikes("error", self.config.error):
            raise self._failure(service, "internal" if self._random.random() < 0.5 else "unavailable")
        return ""

    def after(self, service: str, action: str, spell: str) -> None:
        """Lose the answer. Raises LostAnswerError."""
        struck = _matches(self.config.actions, service, action) and self.strikes("lost", self.config.lost)
        if struck or spell == "lost":
            raise LostAnswerError


def _matches(patterns: Sequence[str], service: str, action: str) -> bool:
    return any(fnmatchcase(f"{service}:{action}", pattern) for pattern in patterns)
