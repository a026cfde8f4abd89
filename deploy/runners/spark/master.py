"""The cluster's master: one detached process, found again by every later scheduler."""

from __future__ import annotations

import base64
import json
import secrets
import socket
import threading
import time
from pathlib import Path
from typing import Any

import httpx

from deploy.runners.base import RunnerError
from deploy.runners.detached import Detached, tail
from deploy.runners.spark.settings import DAEMON_OPTIONS, SparkHome, SparkSettings, properties
from deploy.security.sandbox import Box
from deploy.security.untrusted import remove_tree
from spotweave.files import write_private

_WORKER_TIMEOUT_S = 30
_PORT_TRIES = 3


def secured() -> dict[str, str]:
    """Conf by which every part of the cluster proves that it knows the secret, and encrypts what it says."""
    return {"spark.authenticate": "true", "spark.network.crypto.enabled": "true"}


def free_port(address: str) -> int:
    """A port that nobody uses at this moment."""
    with socket.socket() as probe:
        probe.bind((address, 0))
        return int(probe.getsockname()[1])


class Master:
    """Starts it, finds it, asks it.

    Its ports are chosen once and kept, and it keeps what it knows on disk (recovery mode FILESYSTEM), so that
    after its death the next one takes over the workers and applications that go on without it.

    The REST submission server is on, for operators' own tools: only with a JSON Web Token signed with
    `rest.key` of its folder. The runner itself starts drivers directly (see runner.py).
    """

    def __init__(self, settings: SparkSettings) -> None:
        self._settings = settings
        self._folder = settings.state.resolve() / "master"
        # All that its process may see of the folder: drivers talk to it, and some of them may be hostile.
        self._own = self._folder / "own"
        self._process = Detached(self._folder)
        self._lock = threading.Lock()

    @property
    def url(self) -> str:
        """URL of the master for workers and drivers."""
        return f"spark://{self._settings.address}:{self._ports()['rpc']}"

    @property
    def web_url(self) -> str:
        """URL of the master's web pages."""
        return f"http://{self._settings.address}:{self._ports()['web']}"

    @property
    def rest_url(self) -> str:
        """The REST submission server."""
        return f"http://{self._settings.address}:{self._ports()['rest']}"

    @property
    def secret(self) -> str:
        """What every part of the cluster must know. Never in argv or logs."""
        return (self._folder / "secret").read_text()

    def start(self, home: SparkHome) -> None:
        """Bring it up and wait until it works (idempotent). Raises RunnerError."""
        if self.state() == "ALIVE":
            return
        with self._lock:
            for left in reversed(range(_PORT_TRIES)):
                self._launch(home)
                if self._wait():
                    return
                # Only a master that nobody knows may move; the others' workers look for it where it was.
                taken = "BindException" in tail(self._log, 1 << 14)
                if taken and left and not (self._folder / "was_up").exists():
                    (self._folder / "ports.json").unlink()
                    continue
                break
        raise RunnerError(f"the Spark master does not come up on {self.url}: {self._reason()}")

    def revive(self, home: SparkHome) -> None:
        """Start it again if it died, without waiting. Raises RunnerError."""
        if (self._folder / "was_up").exists() and not self._process.running():
            with self._lock:
                self._launch(home)

    def state(self) -> str | None:
        """ALIVE, RECOVERING, ... as it says itself; None if it cannot be asked."""
        found = self.view()
        return None if found is None else str(found["status"])

    def view(self) -> dict[str, Any] | None:
        """What it says of its workers and applications; None if it cannot be asked."""
        if not (self._folder / "ports.json").exists():
            return None
        try:
            answer = httpx.get(f"{self.web_url}/json/", timeout=5.0, trust_env=False)
            found = answer.raise_for_status().json()
        except (httpx.HTTPError, ValueError):
            return None
        # Something else may have taken the port.
        return found if isinstance(found, dict) and found.get("url") == self.url else None

    def up_s(self) -> float:
        """Seconds since its process was started."""
        started_s = self._process.started_s()
        return 0.0 if started_s is None else time.time() - started_s

    def end(self) -> None:
        """End it and forget its cluster. Raises RunnerError."""
        with self._lock:
            self._process.end(grace_s=0.0)
            remove_tree(self._own)
            (self._folder / "was_up").unlink(missing_ok=True)
            (self._folder / "ports.json").unlink(missing_ok=True)

    @property
    def _log(self) -> Path:
        return self._folder / "master.log"

    def _ports(self) -> dict[str, int]:
        found: dict[str, int] = json.loads((self._folder / "ports.json").read_bytes())
        return found

    def _launch(self, home: SparkHome) -> None:
        if self._process.running():
            return
        address = self._settings.address
        recovery = self._own / "recovery"
        recovery.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            if not (self._folder / "ports.json").exists():
                write_private(
                    self._folder / "ports.json",
                    json.dumps({name: free_port(address) for name in ("rpc", "web", "rest")}),
                )
        except OSError as error:
            raise RunnerError(f"the Spark master cannot listen on {address}: {error.strerror}") from error
        for name in ("secret", "rest.key"):
            if not (self._folder / name).exists():
                write_private(self._folder / name, base64.urlsafe_b64encode(secrets.token_bytes(48)))
        ports = self._ports()
        # Spark would take the next port without a word, and nobody would find it there.
        conf = secured() | {
            "spark.port.maxRetries": "0",
            "spark.deploy.recoveryMode": "FILESYSTEM",
            "spark.deploy.recoveryTimeout": "15",
            "spark.worker.timeout": str(_WORKER_TIMEOUT_S),
            "spark.ui.killEnabled": "false",
            "spark.master.ui.decommission.allow.mode": "DENY",
            "spark.master.rest.enabled": "true",
            "spark.master.rest.host": address,
            "spark.master.rest.port": str(ports["rest"]),
            "spark.master.rest.filters": "org.apache.spark.ui.JWSFilter",
            "spark.deploy.recoveryDirectory": str(recovery),
            "spark.org.apache.spark.ui.JWSFilter.param.secretKey": (self._folder / "rest.key").read_text(),
        }
        write_private(self._own / "master.conf", properties(conf))
        argv = [home.spark_class, "org.apache.spark.deploy.master.Master", "--host", address]
        argv += ["--port", str(ports["rpc"]), "--webui-port", str(ports["web"])]
        argv += ["--properties-file", str(self._own / "master.conf")]
        env = home.environment(address) | {
            "SPARK_MASTER_OPTS": DAEMON_OPTIONS,
            "SPARK_DAEMON_MEMORY": self._settings.daemon_memory,
            "_SPARK_AUTH_SECRET": self.secret,
        }
        sandbox = self._settings.sandbox
        box = Box("spark master", "spark master", (self._own,), self._folder / "tmp")
        boxed = None if sandbox is None else (sandbox, box)
        self._process.start(argv, env, self._own, self._log, again=True, boxed=boxed)

    def _wait(self) -> bool:
        until = time.monotonic() + self._settings.start_timeout_s
        while time.monotonic() < until:
            if self.state() == "ALIVE":
                (self._folder / "was_up").touch()
                return True
            if not self._process.running():
                return False
            time.sleep(0.2)
        return False

    def _reason(self) -> str:
        if self._process.running():
            return f"no answer after {self._settings.start_timeout_s:.0f} s; see {self._log}"
        lines = [line for line in tail(self._log, 1 << 14).splitlines() if line and not line.startswith("\t")]
        errors = [line for line in lines if "Exception" in line or "ERROR" in line or "Error" in line]
        return (errors or lines or ["it ended without a word"])[-1]
