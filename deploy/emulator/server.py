"""An emulated cloud: its account, its application on a socket, and the interface that controls it."""

from __future__ import annotations

import json
import logging
import signal
import socket
import threading
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from moto.moto_server.werkzeug_app import MotoRequestHandler
from pydantic import Field, ValidationError
from werkzeug.serving import make_server
from werkzeug.wrappers import Response

from spotweave.deploy.emulator.config import EmulatorConfig, FaultConfig, Faults, LostAnswerError
from spotweave.deploy.emulator.ledger import Entry, entry, total_usd
from spotweave.deploy.emulator.world import World
from spotweave.deploy.yamlfile import ConfigError, NotNegative, Part, terse_mistake

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIEnvironment


class Emulator(ABC):
    """One account of one cloud, as a WSGI application that answers its clients and whoever controls it.

    Calling it raises LostAnswerError if the answer shall never arrive: the server closes the connection.
    """

    config: EmulatorConfig
    world: World[Any]
    free_first_s: float = 0.0  # what the cloud ends sooner after its start costs nothing

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self._control = Control(self)

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """Answer one request."""
        if environ.get("PATH_INFO", "").startswith(PREFIX):
            status, content = self._control.answer(environ)
            return Response(content, status, content_type="application/json")(environ, start_response)
        return self.answer(environ, start_response)

    @property
    def faults(self) -> Faults:
        """Injected faults."""
        return self.world.faults

    @abstractmethod
    def answer(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """Answer a client's request."""

    @abstractmethod
    def environment(self, url: str) -> Mapping[str, str | None]:
        """Environment variables that lead its clients to this address, first the one that names it.

        No real account is asked with them. None: it must not be set.
        """

    def advance(self, seconds: float) -> None:
        """Let virtual time pass, and everything happen at its time."""
        with self.world.lock:
            self.world.clock.sleep(seconds)
            self.world.settle()

    def ledger(self) -> list[Entry]:
        """Every instance's bill."""
        world = self.world
        with world.lock:
            world.settle()
            now_s = world.now_s()
            return [
                entry(world.market, one, self.config.disk_usd(one.region), now_s, self.free_first_s)
                for one in world.instances.values()
            ]

    def total_usd(self) -> float:
        """The ledger's sum."""
        return float(total_usd(self.ledger()))

    def close(self) -> None:
        """End everything that runs."""
        with self.world.lock:
            self.world.machines.close()


CLOUDS = ("aws", "gcp")


def load(cloud: str, path: Path) -> Emulator:
    """An emulator of one of `CLOUDS`, as its file says. Raises ConfigError."""
    if cloud == "aws":
        from spotweave.deploy.emulator.aws.emulator import AwsEmulator
        from spotweave.deploy.emulator.aws.wire import AwsEmulatorConfig

        return AwsEmulator(AwsEmulatorConfig.load(path))
    if cloud == "gcp":
        from spotweave.deploy.emulator.gcp.emulator import GcpEmulator
        from spotweave.deploy.emulator.gcp.world import GcpEmulatorConfig

        return GcpEmulator(GcpEmulatorConfig.load(path))
    raise ConfigError(f"no cloud {cloud!r} is emulated: expected {', '.join(CLOUDS)}")


_TICK_S = 0.25


class Server:
    """Serves an emulator in threads of its own, and lets its clock work while nobody asks.

    Raises OSError if it cannot listen there.
    """

    def __init__(self, emulator: Emulator, host: str = "127.0.0.1", port: int = 0) -> None:
        self._emulator = emulator
        logging.getLogger("werkzeug").setLevel(logging.WARNING)
        # werkzeug ends the whole process where it cannot listen.
        taken = socket.create_server((host, port))
        self._server = make_server(
            host,
            taken.getsockname()[1],
            self._serve,
            threaded=True,
            request_handler=MotoRequestHandler,
            fd=taken.detach(),
        )
        self._closing = threading.Event()
        self._threads = [
            threading.Thread(target=self._server.serve_forever, name="cloud", daemon=True),
            threading.Thread(target=self._tick, name="clock", daemon=True),
        ]

    @property
    def url(self) -> str:
        """URL for clients."""
        return f"http://{self._server.host}:{self._server.port}"

    def start(self) -> None:
        """Serve from now on."""
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """Serve no more, and end what runs."""
        self._closing.set()
        self._server.shutdown()
        self._server.server_close()
        for thread in self._threads:
            thread.join()
        self._emulator.close()

    def _tick(self) -> None:
        while not self._closing.wait(_TICK_S):
            with self._emulator.world.lock:
                self._emulator.world.settle()

    def _serve(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        try:
            return self._emulator(environ, start_response)
        except LostAnswerError:
            environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
            raise ConnectionError("the answer is lost, as configured") from None


# The control interface under /_emulator/: JSON in, JSON out, for tests and rehearsals.
#
# GET   state, calls (of each action), ledger (every instance's bill, and the sum)
# POST  clock {"advance_s": 60}, faults (the fields of FaultConfig), interrupt {"instance_id": "i-…",
#       "notice_s": 120}, pool {"zone": …, "instance_type": …, "spot_capacity": 0}

PREFIX = "/_emulator/"


class _Clock(Part):
    advance_s: NotNegative


class _Interrupt(Part):
    instance_id: str
    notice_s: NotNegative = 120.0


class _Pool(Part):
    zone: str
    instance_type: str
    spot_capacity: Annotated[int, Field(ge=0)] | None = None
    on_demand_capacity: Annotated[int, Field(ge=0)] | None = None


class _RefusedError(Exception):
    """One line for whoever asked."""


class Control:
    """Answers for one emulator."""

    def __init__(self, emulator: Emulator) -> None:
        self._emulator = emulator
        self._reads: dict[str, Callable[[], Any]] = {
            "state": self._state,
            "calls": lambda: dict(sorted(emulator.calls.items())),
            "ledger": self._ledger,
        }
        self._writes: dict[str, Callable[[bytes], Any]] = {
            "clock": self._clock,
            "faults": self._faults,
            "interrupt": self._interrupt,
            "pool": self._pool,
        }

    def answer(self, environ: WSGIEnvironment) -> tuple[int, bytes]:
        """Status and JSON."""
        name = environ.get("PATH_INFO", "").removeprefix(PREFIX)
        method = environ.get("REQUEST_METHOD")
        try:
            with self._emulator.world.lock:
                self._emulator.world.settle()
                if method == "GET" and name in self._reads:
                    return 200, json.dumps(self._reads[name]()).encode()
                if method == "POST" and name in self._writes:
                    body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
                    return 200, json.dumps(self._writes[name](body)).encode()
        except ValidationError as error:
            return 400, json.dumps({"error": terse_mistake(error, "the body")}).encode()
        except _RefusedError as error:
            return 400, json.dumps({"error": str(error)}).encode()
        known = [f"GET {one}" for one in self._reads] + [f"POST {one}" for one in self._writes]
        return 404, json.dumps({"error": f"{method} {name}: expected one of {', '.join(known)}"}).encode()

    def _state(self) -> Any:
        world = self._emulator.world
        return {
            "now_s": world.clock.now(),
            "next_s": world.next_s(),
            "instances": Counter(one.state for one in world.instances.values()),
            "interruptions": world.interruptions,
            "faults": dict(self._emulator.faults.counts),
        }

    def _ledger(self) -> Any:
        entries = self._emulator.ledger()
        return {"entries": [asdict(one) for one in entries], "total_usd": float(total_usd(entries))}

    def _clock(self, body: bytes) -> Any:
        given = _Clock.model_validate_json(body)
        if self._emulator.config.clock != "virtual":
            raise _RefusedError("the clock is real: set clock: virtual in the configuration")
        self._emulator.advance(given.advance_s)
        return self._state()

    def _faults(self, body: bytes) -> Any:
        self._emulator.faults.change(FaultConfig.model_validate_json(body))
        return self._emulator.faults.config.model_dump()

    def _interrupt(self, body: bytes) -> Any:
        given = _Interrupt.model_validate_json(body)
        instance = self._emulator.world.instances.get(given.instance_id)
        if instance is None or not instance.spot or not instance.occupies:
            raise _RefusedError(f"{given.instance_id} is no spot instance that runs")
        self._emulator.world.interrupt(instance, given.notice_s)
        return self._state()

    def _pool(self, body: bytes) -> Any:
        given = _Pool.model_validate_json(body)
        pool = self._emulator.world.market.find(given.zone, given.instance_type)
        if pool is None:
            raise _RefusedError(f"there is no pool of {given.instance_type} in {given.zone}")
        names = ("spot_capacity", "on_demand_capacity")
        for name in names:
            if getattr(given, name) is not None:
                setattr(pool, name, getattr(given, name))
        return {name: getattr(pool, name) for name in names}


def serve(cloud: str, path: Path, port: int) -> None:
    """Emulate a cloud on this machine until SIGTERM or SIGINT, and print how programs find it.

    It listens on 127.0.0.1; `port` 0: on a free one. Raises ConfigError: one line; nothing is left then.
    """
    emulator = load(cloud, path)
    try:
        server = Server(emulator, port=port)
    except OSError as error:
        emulator.close()
        raise ConfigError(f"cannot listen on 127.0.0.1:{port}: {error.strerror}") from error
    stopping = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())
    server.start()
    name, url = next(iter(emulator.environment(server.url).items()))
    print(f"{name}={url}", flush=True)
    stopping.wait()
    server.close()
