"""How long something has not been as it should be, as far as somebody looked."""

from __future__ import annotations

import time

_GAP_MOST_S = 15.0


class Silence:
    """Seconds since the latest good sign.

    Of the time between two looks only so much counts: a scheduler that was held up itself, or was suspended
    with its machine, must not take that for the silence of others.
    """

    def __init__(self) -> None:
        self._looked_s: float | None = None
        self._silent_s = 0.0

    def note(self, good: bool, now_s: float | None = None) -> float:
        """Take a look into account. Returns the seconds of silence, 0 after a good sign.

        Args:
            good: whether it is as it should be.
            now_s: of a monotonic clock; None: now.
        """
        now_s = time.monotonic() if now_s is None else now_s
        if good:
            self._silent_s = 0.0
        elif self._looked_s is not None:
            self._silent_s += min(now_s - self._looked_s, _GAP_MOST_S)
        self._looked_s = now_s
        return self._silent_s
