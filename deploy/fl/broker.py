"""One broker of a job, with a memory that lasts; and what the server and brokers say to each other.

The shards and lists are those of `agents.federated.asynchronous.brokers`.

The server's success message is the next version of the model: until it comes, a list that was agreed on
stays, and so do the shards that it names. So a broker or a server that is killed, wherever it was, does
not lose an update and does not use one twice.
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, RootModel

from spotweave.agents.federated.asynchronous.aggregator import UpdateError, UpdateId
from spotweave.agents.federated.asynchronous.brokers import Broker, RingVector, Shard, confirm
from spotweave.deploy.model.strategies import FedSuda, HaleFed, selection
from spotweave.deploy.node.client import ExchangeError, exchange
from spotweave.deploy.statefile import StateFile
from spotweave.files import write_private

# What a broker knows, on its disk before anybody is told of it.

_FILE = re.compile(r"([0-9]+)-([0-9]+)-([0-9]+)\.shard")


class Memory(StateFile):
    """Persistent state of a broker beside the shards."""

    size: int  # d, weights of the model
    version: int
    # the list of this version's successor, once all brokers have confirmed it
    agreed: list[UpdateId] = Field(default_factory=list)
    settled: list[UpdateId] = Field(default_factory=list)  # updates that are never taken again
    attended: list[int] = Field(default_factory=list)  # Fed-SUDA: who has taken part in the present episode
    episode: int = 0  # Fed-SUDA: its number
    used: list[int] = Field(default_factory=list)  # how many updates of each client were used


class ShardFiles:
    """The shards of one broker."""

    def __init__(self, folder: Path, number: int, samples: list[int]) -> None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._folder, self._number, self._samples = folder, number, samples

    def keep(self, shard: Shard) -> None:
        """Write one."""
        write_private(self._file(shard.id), shard.values.tobytes())

    def holds(self, shard: Shard) -> bool:
        """Whether this very shard is stored."""
        try:
            return self._file(shard.id).read_bytes() == shard.values.tobytes()
        except FileNotFoundError:
            return False

    def all(self, size: int) -> Iterator[Shard]:
        """In the order of their arrival; those of another size are left out."""
        for path in sorted(self._folder.glob("*.shard"), key=lambda path: path.stat().st_mtime_ns):
            name, content = _FILE.fullmatch(path.name), path.read_bytes()
            if name and len(content) == 8 * size and int(name[1]) < len(self._samples):
                participant, version, number = int(name[1]), int(name[2]), int(name[3])
                values = np.frombuffer(content, np.uint64)
                samples = self._samples[participant]
                yield Shard(participant, version, self._number, values, samples, number)

    def keep_only(self, held: Collection[UpdateId]) -> None:
        """All others go."""
        names = {self._file(update).name for update in held}
        for path in self._folder.glob("*.shard"):
            if path.name not in names:
                path.unlink(missing_ok=True)

    def _file(self, update: UpdateId) -> Path:
        return self._folder / f"{update.participant}-{update.base_version}-{update.number}.shard"


class DurableBroker:
    """May be used from several threads. Methods raise BrokerError where they have to be asked again later."""

    def __init__(self, settings: BrokerSettings) -> None:
        self._settings = settings
        self._memory_file = settings.folder / "memory.json"
        self._bound = settings.strategy.staleness_most
        self._lock = threading.RLock()
        self._files = ShardFiles(settings.folder / "shards", settings.number, settings.samples)
        epochs_s = {str(number): epoch_s for number, epoch_s in enumerate(settings.epochs_s)}
        strategy = settings.strategy
        self._selection = selection(strategy, epochs_s) if isinstance(strategy, FedSuda) else None
        self._broker: Broker | None = None
        self._memory = Memory.load(self._memory_file) or Memory(size=0, version=0)
        if self._memory.size:
            self._restore()

    @property
    def size(self) -> int:
        """d, weights of the model. Raises BrokerError while that is not known."""
        with self._lock:
            self._known()
            return self._memory.size

    def model(self, version: int, size: int) -> None:
        """The server has this version of the model now: what it was made of is not needed any more."""
        with self._lock:
            if self._broker is None or size != self._memory.size or version < self._memory.version:
                # A server that has lost its checkpoints: what is here goes with models that do not exist.
                self._files.keep_only(())
                self._memory = Memory(size=size, version=version)
                self._memory.save(self._memory_file)
                self._restore()
            elif version > self._memory.version:
                used: Sequence[UpdateId] = self._memory.agreed
                self._count(used)
                if self._selection is not None:
                    used = self._selection.used(used)
                self._broker.settle(version, used)
                self._memory.version, self._memory.agreed = version, []
                self._save()

    def receive(self, client: int, version: int, number: int, values: RingVector) -> None:
        """Keep a shard; when this returns, it is on the disk.

        Raises UnwantedError (late, again), UpdateError.
        """
        with self._lock:
            broker = self._known()
            if version > self._memory.version:
                raise BrokerError(f"model {version} is not known here yet")
            samples = self._settings.samples[client]
            shard = Shard(client, version, self._settings.number, values, samples, number)
            if shard.id in broker.settled or self._memory.version - version > self._bound:
                raise UnwantedError(f"an update of model {version} was used or given up, or is too old")
            if self._files.holds(shard):
                # Its sender did not hear that it had arrived.
                return
            broker.receive(shard, client)
            try:
                self._files.keep(shard)
            except OSError as error:
                # Its sender tries again: as if it had never come.
                self._restore()
                raise BrokerError(f"cannot keep a shard: {error.strerror}") from error

    def held(self) -> Held:
        """What is here, but for what will never be used again."""
        with self._lock:
            return Held(version=self._memory.version, updates=self._known().held)

    def standing(self) -> list[Standing]:
        """How each client stands, by its number; nothing before the server has said what it trains."""
        with self._lock:
            if self._broker is None:
                return []
            version = self._memory.version
            staleness = {one.participant: version - one.base_version for one in self._broker.held}
            slow = frozenset() if self._selection is None else self._selection.slow
            used = self._memory.used or [0] * len(self._settings.samples)
            return [
                Standing(used=count, staleness=staleness.get(client), slow=client in slow)
                for client, count in enumerate(used)
            ]

    def agreed(self) -> list[UpdateId]:
        """The list of the next version; empty while there is none."""
        with self._lock:
            return list(self._memory.agreed)

    def choose(self, complete: Sequence[UpdateId], version: int) -> list[UpdateId] | None:
        """The organizer's part of Algorithm 5: the next list; None while updates have to be waited for."""
        with self._lock:
            if self._selection is not None:
                return self._selection.choose(complete, version)
            fresh = [update for update in complete if version - update.base_version <= self._bound]
            needed = self._settings.strategy.updates_per_round
            return fresh[:needed] if len(fresh) >= needed else None

    def superseded(self, complete: Sequence[UpdateId]) -> list[UpdateId]:
        """Fed-SUDA keeps the latest of each client only."""
        if self._selection is None:
            return []
        latest = sorted(complete, key=lambda update: update.base_version)
        newest = {update.participant: update for update in latest}
        return [update for update in complete if newest[update.participant] != update]

    def agree(self, version: int, confirmed: Sequence[UpdateId], discarded: Iterable[UpdateId]) -> None:
        """Take a list, if there is one, for the next version's, for good; give up other updates' shards."""
        with self._lock:
            broker = self._known()
            if version != self._memory.version:
                raise BrokerError(f"model {version} is not the present one, {self._memory.version}")
            if missing := set(confirmed) - set(broker.held):
                raise BrokerError(f"broker {self._settings.number} lacks {len(missing)} of the list's shards")
            broker.discard(set(discarded) - set(confirmed))
            if confirmed:
                self._memory.agreed = list(confirmed)
            self._save()

    def component(self, version: int) -> tuple[ComponentHead, RingVector]:
        """Sum of the shards for the model after this version: C_j of Eq. 6.1 before the division, (d,)."""
        with self._lock:
            broker, agreed = self._known(), self._memory.agreed
            if version != self._memory.version or not agreed:
                raise BrokerError(f"no list is agreed on for the model after {version}")
            found = broker.component(agreed)
            digest = hashlib.sha256(json.dumps(agreed).encode()).hexdigest()
            return ComponentHead(samples=found.samples, digest=digest), found.values

    def _count(self, used: Sequence[UpdateId]) -> None:
        counts = self._memory.used or [0] * len(self._settings.samples)
        for update in used:
            counts[update.participant] += 1
        self._memory.used = counts

    def _known(self) -> Broker:
        if self._broker is None:
            raise BrokerError("the server has not said yet what model it trains")
        return self._broker

    def _restore(self) -> None:
        memory = self._memory
        self._broker = Broker(self._settings.number, memory.size, self._bound)
        self._broker.settle(memory.version, memory.settled)
        if self._selection is not None:
            self._selection.attended = set(memory.attended)
            self._selection.episode = memory.episode
        for shard in self._files.all(memory.size):
            try:
                self._broker.receive(shard, shard.participant)
            except UpdateError:
                # It was used or given up just before the end of this process.
                continue
        self._files.keep_only(self._broker.held)

    def _save(self) -> None:
        broker = self._known()
        self._memory.settled = sorted(broker.settled)
        if self._selection is not None:
            self._memory.attended = sorted(self._selection.attended)
            self._memory.episode = self._selection.episode
        self._memory.save(self._memory_file)
        self._files.keep_only(broker.held)


# The organizing broker's part: a list that all brokers confirm (Algorithm 5 of Liu 2022).


class Organizer:
    """Broker 0 of a job; an update of which shards are missing for `incomplete_s` is given up."""

    def __init__(self, own: DurableBroker, others: Mapping[int, Place], incomplete_s: float) -> None:
        self._own = own
        self._others = others
        self._incomplete_s = incomplete_s
        self._since_s: dict[UpdateId, float] = {}
        self._one = threading.Lock()

    def prepare(self, version: int) -> list[UpdateId]:
        """Have a list confirmed for the version after this one; the same list until that is there.

        It is empty while updates have to be waited for. Raises BrokerError if a broker does not answer, or is
        not where the others are.
        """
        with self._one:
            if agreed := self._own.agreed():
                # Perhaps it was killed before it could tell the others.
                self._tell(version, agreed, [])
                return agreed
            held = {0: self._own.held()}
            for number, place in self._others.items():
                held[number] = Held.model_validate(place.post("/v1/held"))
            if {one.version for one in held.values()} != {version}:
                raise BrokerError(f"not all brokers know model {version} yet")
            updates = {number: one.updates for number, one in held.items()}
            complete = confirm(updates[0], updates, len(held)).confirmed
            chosen = self._own.choose(complete, version)
            missing = set().union(*updates.values()) - set(updates[0]).intersection(*updates.values())
            discarded = self._overdue(missing) + self._own.superseded(complete)
            if chosen or discarded:
                self._own.agree(version, chosen or [], discarded)
                self._tell(version, chosen or [], discarded)
            return chosen or []

    def _tell(self, version: int, confirmed: Sequence[UpdateId], discarded: Sequence[UpdateId]) -> None:
        message = Agreement(version=version, confirmed=list(confirmed), discarded=list(discarded))
        for place in self._others.values():
            place.post("/v1/agree", message.model_dump())

    def _overdue(self, missing: set[UpdateId]) -> list[UpdateId]:
        now_s = time.monotonic()
        self._since_s = {update: self._since_s.get(update, now_s) for update in missing}
        return [update for update, since_s in self._since_s.items() if now_s - since_s > self._incomplete_s]


# What the server and brokers say to each other, in JSON.


class _Message(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Model(_Message):
    """The server's message about its model."""

    version: int = Field(ge=0)
    size: int = Field(gt=0, le=1 << 32)


class Prepared(_Message):
    """What the server is told of the next version: no names of clients."""

    updates: int = 0  # number of them; 0: they have to be waited for
    staleness_mean: float = 0.0  # versions between the model that they began with and the present one
    staleness_most: int = 0  # of the oldest


class ComponentHead(_Message):
    """What comes before a broker's sum, in a line of its own."""

    samples: int  # weights of its updates together
    digest: str  # of its list; sums of different lists do not add up to anything


class Agreement(_Message):
    """The organizer's message to the other brokers."""

    version: int
    confirmed: list[UpdateId]
    discarded: list[UpdateId]


class Held(_Message):
    """Contents of a broker."""

    version: int
    updates: list[UpdateId]  # of which it holds the shard, in the order of their arrival


class Standing(_Message):
    """Status of a client, for the job's owner."""

    used: int  # how many updates of it were used; a shadow counts each time
    staleness: int | None  # of its newest update that is held, in versions of the model; None: none is held
    slow: bool  # whether that is a shadow, which is used again


class Standings(RootModel[list[Standing]]):
    """All clients, by their number."""


# Where brokers are, what they prove who they are with, and with what the one who asks does.

KEY = "spotweave-brokers"
"""In a node's configuration: the file with its `Places`."""
_SHORT_S = 10.0
_BYTES_S = 1e6
_MOST_BYTES = 1 << 20
SERVER = "server"
RUNNER = "runner"


def client(number: int) -> str:
    """Name of a client at brokers."""
    return f"client-{number}"


def broker(number: int) -> str:
    """Name of a broker at other parties."""
    return f"broker-{number}"


class BrokerError(Exception):
    """A broker does not answer, or cannot do now what it is asked; trying again may help."""


class UnwantedError(UpdateError):
    """A shard came too late, or again after its update was used or given up."""


class Place(_Message):
    """One broker, as one of those that ask it knows it."""

    host: str  # IP address
    port: int  # on which it listens
    certificate: str  # PEM; whoever shows another one is told nothing
    token: str = Field(repr=False)  # of the one who asks, at this broker alone

    def ask(
        self,
        method: str,
        path: str,
        body: bytes = b"",
        most_bytes: int = _MOST_BYTES,
        within_s: float = _SHORT_S,
    ) -> bytes:
        """One request; what is large has more time than `within_s`.

        Raises:
            BrokerError: if it does not answer, or not now (503).
            UnwantedError: if a shard is not wanted any more (410).
            UpdateError: if it refuses for good; one line.
        """
        try:
            status, content = exchange(
                (self.host, self.port),
                self.certificate,
                method,
                path,
                headers={"Authorization": f"Bearer {self.token}"},
                body=body,
                within_s=within_s + max(0, len(body) + most_bytes - _MOST_BYTES) / _BYTES_S,
                most_bytes=most_bytes,
            )
        except ExchangeError as error:
            raise BrokerError(f"broker {self.host}:{self.port}: {error}") from error
        if status < 300:
            return content
        reason = " ".join(content.decode(errors="replace").split())[:300]
        if status == 503:
            raise BrokerError(f"broker {self.host}:{self.port}: {reason}")
        raise UnwantedError(reason) if status == 410 else UpdateError(reason)

    def post(self, path: str, message: Any = None, within_s: float = _SHORT_S) -> Any:
        """A small request and its answer, both JSON. Raises as `ask`."""
        content = self.ask("POST", path, json.dumps(message).encode(), within_s=within_s)
        return json.loads(content) if content else None


class Places(_Message):
    """All brokers of a job, by their number."""

    brokers: list[Place]


# What a broker is told when it is started.


class BrokerSettings(_Message):
    """One broker of a job."""

    number: int  # gamma, from 0; broker 0 organizes
    host: str  # IP address on which it listens
    port: int  # on which it listens
    certificate: str  # PEM, its own
    key: str = Field(repr=False)  # PEM, its own
    tokens: dict[str, str] = Field(repr=False)  # of those who may ask, by what they are called
    strategy: HaleFed | FedSuda = Field(discriminator="kind")
    samples: list[int]  # of each client, by its number
    # expected seconds of each client's part of a round, by its number; None: not known
    epochs_s: list[float | None]
    others: dict[int, Place] = {}  # where the organizer finds the others; empty for those
    folder: Path  # for what it must know after a restart
    incomplete_s: float = 120.0  # an update of which shards are missing is given up after so long
