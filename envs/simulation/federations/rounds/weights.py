"""Which weights survive the server (Brum 2023, section 6.3): its copies elsewhere, and the clients'."""

from __future__ import annotations

import math
from collections.abc import Sequence

from envs.simulation.federations.rounds.application import Checkpoints
from envs.simulation.federations.rounds.decisions import State
from envs.simulation.federations.rounds.history import ServerLoss
from envs.simulation.federations.rounds.member import Member


class Weights:
    """What is kept, and what each revocation of the server cost.

    Args:
        checkpoints: what is saved, and when; None: nothing.
        clients: all of them.
    """

    def __init__(self, checkpoints: Checkpoints | None, clients: Sequence[Member]) -> None:
        self._checkpoints = checkpoints
        self._clients = clients
        self._elsewhere: list[tuple[int, int]] = []
        """The server's copies: rounds, and the second from which on it is complete."""
        self._lost: tuple[int, int] | None = None
        """While no server serves: when it was revoked, and the newest copy that was complete then."""
        self.losses: list[ServerLoss] = []

    @property
    def waiting(self) -> bool:
        """Whether the server was revoked and none serves yet."""
        return self._lost is not None

    def keep(self, rounds: int, now_s: int) -> None:
        """`rounds` are aggregated: the server sends a copy away, clients that are there keep theirs."""
        checkpoints = self._checkpoints
        if checkpoints is None:
            return
        if checkpoints.every_rounds is not None and rounds % checkpoints.every_rounds == 0:
            self._elsewhere.append((rounds, now_s + math.ceil(checkpoints.transfer_s)))
        if checkpoints.on_clients:
            for member in self._clients:
                if member.state is State.IDLE:
                    member.kept_rounds = rounds

    def lose_server(self, now_s: int) -> None:
        """The server is revoked; a copy that was still on its way is lost with it."""
        complete = [rounds for rounds, complete_s in self._elsewhere if complete_s <= now_s]
        self._lost = (now_s, max(complete, default=0))

    def restore(self, round_index: int, now_s: int) -> int:
        """The next server is there: rounds that the newest of its own and the clients' copies holds."""
        assert self._lost is not None
        lost_s, newest = self._lost
        self._lost = None
        newest = max([newest, *(member.kept_rounds for member in self._clients if member.running)])
        self.losses.append(ServerLoss(lost_s, round_index, now_s, newest))
        self._elsewhere = [(rounds, complete_s) for rounds, complete_s in self._elsewhere if rounds <= newest]
        return newest
