"""A policy that is watched: what it would have chosen, and what that would cost more or less."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Watched:
    """Another policy's answer about the same task at the same moment; the safety net and the gain that a move
    must bring hold for it as well.

    Attributes:
        policy: its name.
        choice: offer; None for "none for now".
        difference_usd: expected USD of its choice minus that of the one that was taken, by one appraisal for
            both (see `deploy.scheduler.appraising`): below 0 the watched policy would have been cheaper.
    """

    policy: str
    choice: str | None
    difference_usd: float
