"""Things that go wrong: kills between two effects, errors, machines that vanish; at random or when told."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

from benchmarks.simulated import SimulatedProvider
from deploy.model.instances import InstanceReport, LaunchRequest
from deploy.model.jobs import TaskKey
from deploy.model.tasks import Assignment, TaskReport
from deploy.providers.base import CapacityError, ProviderError, ThrottledError
from deploy.runners.base import RunnerError
from deploy.store.store import Store

# The first of each is what a time-out raises. The last ones are what nothing should raise.
PROVIDER_ERRORS = (ProviderError, ThrottledError, CapacityError, KeyError, OSError)
RUNNER_ERRORS = (RunnerError, ValueError, ZeroDivisionError)


class Killed(BaseException):
    """The scheduler's process ends here: nothing after this point happens."""


class Striking(Protocol):
    """Decides what goes wrong.

    Attributes:
        counts: how often what did.
    """

    counts: Counter[str]

    def strikes(self, kind: str) -> bool:
        """Whether a fault of this kind happens now."""

    def one_of(self, errors: tuple[type[Exception], ...]) -> type[Exception]:
        """Which error a call fails with."""


class Faults:
    """At random; `left` counts down.

    Args:
        seed: of the choices.
        rate: share of calls at which something goes wrong.
        most: this many faults, then everything is well.
    """

    def __init__(self, seed: int, rate: float, most: int) -> None:
        self.rng = random.Random(seed)
        self.rate = rate
        self.left = most
        self.counts: Counter[str] = Counter()

    def strikes(self, kind: str) -> bool:
        if self.left <= 0 or self.rng.random() >= self.rate:
            return False
        self.left -= 1
        self.counts[kind] += 1
        return True

    def one_of(self, errors: tuple[type[Exception], ...]) -> type[Exception]:
        return self.rng.choice(errors)


class Armed:
    """One fault at a time, at the n-th point from now at which something can go wrong."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._points = 0
        self._error = 0

    def arm(self, points: int, error: int = 0) -> None:
        """Strike at the `points`-th point from now, with the `error`-th of the errors that fit there."""
        self._points, self._error = points, error

    def disarm(self) -> None:
        self._points = 0

    def strikes(self, kind: str) -> bool:
        if self._points == 0:
            return False
        self._points -= 1
        if self._points:
            return False
        self.counts[kind] += 1
        return True

    def one_of(self, errors: tuple[type[Exception], ...]) -> type[Exception]:
        return errors[self._error % len(errors)]


class Faulty:
    """An object whose methods are killed before or after their effect, or fail with one of its errors."""

    def __init__(self, inner: Any, faults: Striking, errors: tuple[type[Exception], ...]) -> None:
        self._inner = inner
        self._faults = faults
        self._errors = errors

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._inner, name)
        return self._wrap(name, value) if callable(value) else value

    def _wrap(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*args: Any, **keywords: Any) -> Any:
            if self._faults.strikes(f"killed before {name}"):
                raise Killed
            if self._faults.strikes(f"{name} fails"):
                raise self._faults.one_of(self._errors)("it cannot be done now")
            result = call(*args, **keywords)
            if self._faults.strikes(f"killed after {name}"):
                raise Killed
            if self._faults.strikes(f"{name} was done and said it failed"):
                raise self._errors[0]("time-out")
            return result

        return wrapped


class FaultyProvider(Faulty):
    """A cloud whose answers are also late or leave things out.

    Attributes:
        blind_until_s: `describe` says nothing of any machine before this epoch second.
    """

    def __init__(self, inner: SimulatedProvider, faults: Striking) -> None:
        super().__init__(inner, faults, PROVIDER_ERRORS)
        self._describe = self._wrap("describe", inner.describe)
        self._launch = self._wrap("launch", inner.launch)
        self._earlier: Sequence[InstanceReport] = ()
        self._unsure: set[str] = set()
        self.blind_until_s = 0.0

    def describe(self, deployment: str) -> Sequence[InstanceReport]:
        """All machines; as they were a while ago, without the newest, or none at all."""
        told: Sequence[InstanceReport] = self._describe(deployment)
        if self._inner.cloud.clock.now() < self.blind_until_s:
            return ()
        if self._faults.strikes("describe answers with what was before"):
            return self._earlier
        if self._faults.strikes("describe does not know the newest yet"):
            return [one for one in told if one in self._earlier]
        self._earlier = told
        return told

    def launch(self, request: LaunchRequest) -> InstanceReport:
        """A machine; if the answer to the first try was lost, the second may be refused."""
        if request.client_token in self._unsure and self._faults.strikes("a launch is refused when repeated"):
            raise CapacityError("no capacity any more")
        self._unsure.add(request.client_token)
        report: InstanceReport = self._launch(request)
        self._unsure.discard(request.client_token)
        return report


class FaultyRunner(Faulty):
    """A runner whose reports may be those of the look before."""

    def __init__(self, inner: Any, faults: Striking) -> None:
        super().__init__(inner, faults, RUNNER_ERRORS)
        self._reports = self._wrap("reports", inner.reports)
        self._earlier: dict[TaskKey, TaskReport] = {}

    def reports(self, assignments: Sequence[Assignment]) -> Sequence[TaskReport]:
        """One for each; late ones are about earlier attempts, or from before the end."""
        told: list[TaskReport] = list(self._reports(assignments))
        late = self._faults.strikes("reports are late")
        found = [self._earlier.get(one.key, one) if late else one for one in told]
        self._earlier = {one.key: one for one in told}
        return found


def faulty_transactions(store: Store, faults: Striking) -> None:
    """Kill the process right before a commit (nothing is written) or right after it."""
    original = store.transaction

    @contextmanager
    def transaction() -> Iterator[None]:
        with original():
            yield
            if faults.strikes("killed before a commit"):
                raise Killed
        if faults.strikes("killed after a commit"):
            raise Killed

    store.transaction = transaction  # type: ignore[method-assign]
