"""Things that go wrong, at random: kills between any two effects, errors, machines that vanish."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from deploy.providers.base import CapacityError, ProviderError, ThrottledError
from deploy.runners.base import RunnerError
from deploy.store.store import Store


class Killed(BaseException):
    """The scheduler's process ends here: nothing after this point happens."""


class Faults:
    """Decides what goes wrong; `left` counts down.

    Args:
        seed: of the choices.
        rate: share of calls at which something goes wrong.
        most: so many faults, then everything is well.
    """

    def __init__(self, seed: int, rate: float, most: int) -> None:
        self.rng = random.Random(seed)
        self.rate = rate
        self.left = most
        self.counts: dict[str, int] = {}

    def strikes(self, kind: str) -> bool:
        """Whether a fault of this kind happens now."""
        if self.left <= 0 or self.rng.random() >= self.rate:
            return False
        self.left -= 1
        self.counts[kind] = self.counts.get(kind, 0) + 1
        return True


class Faulty:
    """An object whose methods are killed before or after their effect, or fail with one of its errors."""

    def __init__(self, inner: Any, faults: Faults, errors: tuple[type[Exception], ...]) -> None:
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
                raise self._faults.rng.choice(self._errors)("it cannot be done now")
            result = call(*args, **keywords)
            if self._faults.strikes(f"killed after {name}"):
                raise Killed
            if self._faults.strikes(f"{name} was done and said it failed"):
                raise self._faults.rng.choice(self._errors[:1])("time-out")
            return result

        return wrapped


PROVIDER_ERRORS = (ProviderError, ThrottledError, CapacityError)
RUNNER_ERRORS = (RunnerError,)


def faulty_transactions(store: Store, faults: Faults) -> None:
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
