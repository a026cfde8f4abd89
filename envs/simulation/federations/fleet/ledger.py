"""Who holds what of the shared quotas, and who may have more, so that everybody can end.

Two applications that each hold one of two GPUs and wait for the other one would wait for ever, paid. So an
instance is granted only if afterwards the applications could still end one after the other, each with what is
free and what those before it give back (the banker's algorithm: Dijkstra 1965, EWD 108). What an application
may still need is the place of every task of it that has no instance: where it was last, at first its claim.
To give an instance back keeps that possible, and so does its revocation: free and needed grow alike.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from envs.simulation.federations.fleet.quotas import SharedQuota, amounts_of
from envs.simulation.federations.rounds.application import Application
from envs.simulation.federations.rounds.rented import Rented

Amounts = NDArray[np.float64]
"""[Q] of each quota."""


class Ledger:
    """All applications' instances and claims.

    Args:
        quotas: shared by all.
    """

    def __init__(self, quotas: Sequence[SharedQuota]) -> None:
        self.quotas = tuple(quotas)
        self.limits: Amounts = np.array([quota.limit for quota in quotas], np.float64)
        self.begun: list[Share] = []
        """Of applications that have begun and are not over."""
        self.freed = False
        """Whether something was given back, or is not needed any more, since this was last set to False."""

    def safe(self, share: Share, held: Amounts, needed: Amounts) -> bool:
        """Whether all that have begun could end if this one held, and may still need, so much."""
        waiting = [
            (held, needed),
            *((other.held(), other.needed()) for other in self.begun if other is not share),
        ]
        free = self.limits - sum((item[0] for item in waiting), np.zeros_like(self.limits))
        if (free < 0).any():
            return False
        while waiting:
            ends = next((k for k, (_, need) in enumerate(waiting) if (need <= free).all()), None)
            if ends is None:
                return False
            free += waiting.pop(ends)[0]
        return True


class Share(Rented):
    """One application's part of a ledger; its own quotas hold as well.

    Args:
        ledger: shared by all.
        application: whose instances these are.
        claim: by task (a client's index, or SERVER), an offer on which it can run while all others run on
            theirs.
        reserve: whether it keeps the places of its tasks from its beginning to its end, also those that it
            has released; otherwise others may rent there in the meantime.

    Raises:
        ValueError: if not all of the claim can be rented at once, even by this application alone.
    """

    def __init__(
        self, ledger: Ledger, application: Application, claim: Mapping[int, int], reserve: bool = False
    ) -> None:
        super().__init__(application.quotas)
        self._ledger = ledger
        self._amounts = amounts_of(ledger.quotas, application)
        self._places = dict(claim)
        self._reserve = reserve
        self.refused = False
        """Whether others' instances were in the way since this was last set to False."""
        needed = self._sum(claim.values())
        for quota, amount in zip(ledger.quotas, needed.tolist(), strict=True):
            if amount > quota.limit:
                raise ValueError(
                    f"{application.name!r} needs {amount:g} {quota.name} at once, "
                    f"{quota.limit:g} are allowed: raise the quota, or place its tasks elsewhere"
                )

    def begin(self, task: int, offer: int) -> None:
        """An instance is requested."""
        super().begin(task, offer)
        if self._places.get(task) != offer:
            self._places[task] = offer
            self._ledger.freed = True

    def end(self, task: int) -> None:
        """An instance ends."""
        super().end(task)
        self._ledger.freed = True

    def leave(self, task: int) -> None:
        """A task, which has no instance any more, will never have one again."""
        del self._places[task]
        self._ledger.freed = True

    def close(self) -> None:
        """The application is over: all its instances have ended."""
        self._offers.clear()
        self._places.clear()
        self._ledger.begun.remove(self)
        self._ledger.freed = True

    def allow(self, task: int | None, offer: int) -> bool:
        """As `Rented.allow`, besides all other applications."""
        if not super().allow(task, offer):
            return False
        if not self._amounts[:, offer].any():
            return True
        places, instances = dict(self._places), dict(self._offers)
        # -2 is no task's number: one more instance.
        places[-2 if task is None else task] = instances[-2 if task is None else task] = offer
        whole = self._sum(places.values())
        held = whole if self._reserve else self._sum(instances.values())
        if self._ledger.safe(self, held, whole - held):
            return True
        self.refused = True
        return False

    def fits(self) -> bool:
        """Whether all tasks could be where they are to be now, besides all other applications."""
        whole = self._sum(self._places.values())
        return self._ledger.safe(self, whole, np.zeros_like(whole))

    def held(self) -> Amounts:
        """What nobody else can have now."""
        return self._sum((self._places if self._reserve else self._offers).values())

    def needed(self) -> Amounts:
        """What the tasks without instances take where they were last."""
        return self._sum(self._places.values()) - self.held()

    def _sum(self, offers: Iterable[int]) -> Amounts:
        total: Amounts = self._amounts[:, list(offers)].sum(axis=1)
        return total
