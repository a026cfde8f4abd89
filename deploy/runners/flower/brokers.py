"""The brokers of a job whose strategy has some: processes on the scheduler's machine that outlive it.

Each has a certificate of its own, and of the tokens those that open this broker. The runner alone knows them
all; the SuperLink and the user's ServerApp are shown the server's, a client the client's.
"""

from __future__ import annotations

import hmac
import json
import os
import secrets
import sys
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path

from spotweave.agents.federated.asynchronous.aggregator import UpdateError
from spotweave.deploy.fl import broker
from spotweave.deploy.fl.broker import (
    BrokerError,
    BrokerSettings,
    Place,
    Places,
    Standing,
    Standings,
)
from spotweave.deploy.model.jobs import Flower
from spotweave.deploy.model.strategies import FedSuda, HaleFed
from spotweave.deploy.runners.detached import Detached, Limits
from spotweave.deploy.runners.flower.liveness import Silence
from spotweave.deploy.runners.flower.settings import JobFiles
from spotweave.deploy.security.keys import Pair, node_pair
from spotweave.files import write_private

_RESTART_S = 5.0
_LOOK_S = 3.0
_LOOK_WITHIN_S = 1.0


@dataclass(eq=False, repr=False)
class Brokers:
    """The brokers of one job."""

    state: JobFiles
    host: str  # IP address on which they listen
    ports: list[int]  # one for each
    work: Flower  # of the job
    limits: Limits  # of each
    # how clients stand, by their number; empty while that is not known
    standing: list[Standing] = field(default_factory=list)
    problem: str = ""  # why one did not answer at the latest look; "" if all did
    _next_look_s: float = 0.0

    def __post_init__(self) -> None:
        self._next_start_s = [0.0] * len(self.ports)
        self._silences = [Silence() for _ in self.ports]

    def places(self, who: str) -> list[Place]:
        """All brokers, with the tokens of one who asks."""
        return [self._place(number, who) for number in range(len(self.ports))]

    def places_file(self, client: str) -> bytes:
        """The same for a client, as its node gets it."""
        number = [one.name for one in self.work.clients].index(client)
        return Places(brokers=self.places(broker.client(number))).model_dump_json().encode()

    def look(self, silent_s: float) -> None:
        """Note how clients stand, and end what has not answered for `silent_s`: it is started again.

        Raises RunnerError while one still ends.
        """
        if time.monotonic() < self._next_look_s:
            return
        self._next_look_s = time.monotonic() + _LOOK_S
        self.problem = ""
        for number, silence in enumerate(self._silences):
            try:
                found = self._place(number, broker.RUNNER).post("/v1/standing", within_s=_LOOK_WITHIN_S)
            except (BrokerError, UpdateError) as error:
                self.problem = str(error)
                if silence.note(False) > silent_s:
                    silence.note(True)
                    Detached(_process(self.state.folder, number)).end(grace_s=0.0)
            else:
                silence.note(True)
                if number == 0:
                    self.standing = Standings.model_validate(found).root

    def keep_running(self) -> None:
        """Start those that do not run, but none too often. Raises RunnerError."""
        for number in range(len(self.ports)):
            process = Detached(_process(self.state.folder, number))
            if not process.running() and time.monotonic() >= self._next_start_s[number]:
                self._next_start_s[number] = time.monotonic() + _RESTART_S
                self._start(number, process)

    def _start(self, number: int, process: Detached) -> None:
        own = process.folder.parent
        own.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_private(own / "settings.json", self._settings(number).model_dump_json())
        argv = [sys.executable, "-m", "spotweave.deploy.fl.broker_server", str(own / "settings.json")]
        env = {"LANG": "C.UTF-8", "PATH": os.environ.get("PATH", os.defpath), "OMP_NUM_THREADS": "1"}
        process.start(argv, env, own, own / "log", again=True, limits=self.limits)

    def _settings(self, number: int) -> BrokerSettings:
        strategy, clients = self.work.strategy, self.work.clients
        assert isinstance(strategy, HaleFed | FedSuda)
        asking = [broker.SERVER, broker.RUNNER, *(broker.client(one) for one in range(len(clients)))]
        others = range(1, len(self.ports)) if number == 0 else ()
        pair = self._pair(number)
        return BrokerSettings(
            number=number,
            host=self.host,
            port=self.ports[number],
            certificate=pair.certificate,
            key=pair.key,
            tokens={who: self._token(number, who) for who in [*asking, *([broker.broker(0)] * (number > 0))]},
            strategy=strategy,
            samples=[one.samples for one in clients],
            epochs_s=[one.epoch_s or self.work.epoch_s for one in clients],
            others={other: self._place(other, broker.broker(0)) for other in others},
            folder=_process(self.state.folder, number).parent,
        )

    def _place(self, number: int, who: str) -> Place:
        certificate, token = self._pair(number).certificate, self._token(number, who)
        return Place(host=self.host, port=self.ports[number], certificate=certificate, token=token)

    def _token(self, number: int, who: str) -> str:
        """Token of one pair; no token reveals another."""
        path = self.state.keys / "brokers.secret"
        if not path.exists():
            write_private(path, secrets.token_urlsafe(32))
        return hmac.digest(path.read_bytes(), f"{number} {who}".encode(), "sha256").hex()

    def _pair(self, number: int) -> Pair:
        path = self.state.keys / f"broker-{number}.json"
        if not path.exists():
            write_private(path, json.dumps(asdict(node_pair())))
        return Pair(**json.loads(path.read_bytes()))


def end_brokers(folder: Path) -> None:
    """End those of the job with this state folder. Raises RunnerError while something of them stays."""
    for place in sorted((folder / "brokers").glob("*/process")):
        Detached(place).end(grace_s=0.0)


def _process(folder: Path, number: int) -> Path:
    return folder / "brokers" / str(number) / "process"
