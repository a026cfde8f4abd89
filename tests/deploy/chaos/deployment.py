"""A whole deployment under faults, and the provider's own books: what each instance must cost."""

from __future__ import annotations

import base64
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from fractions import Fraction
from math import ceil
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import httpx
import yaml

from spotweave.deploy.model.instances import InstanceState
from spotweave.deploy.model.jobs import JobState
from spotweave.deploy.node import procfs
from spotweave.deploy.providers.local.config import LocalConfig
from spotweave.deploy.providers.local.provider import LocalProvider
from spotweave.deploy.store.jobs import Job
from spotweave.deploy.store.store import Store
from tests.deploy.node.agents import ROOT

T = TypeVar("T")
SMALL = {"instance_type": "small", "vcpus": 1, "memory_gib": 1.5, "launch_s": 0.5}
SPOT = {**SMALL, "market": "spot", "on_demand_usd_hour": 0.0371, "quota": 6, "notice_s": 10}
ON_DEMAND = {**SMALL, "market": "on_demand", "region": "here", "quota": 8}
OFFERS: list[dict[str, Any]] = [
    {**SPOT, "zone": "here-a", "price_usd_hour": 0.0123, "billing_minimum_s": 7},
    {**SPOT, "zone": "here-b", "price_usd_hour": 0.0157, "billing_minimum_s": 60},
    {**ON_DEMAND, "price_usd_hour": 0.0371, "billing_minimum_s": 60},
]


class Entry(NamedTuple):
    """One instance."""

    client_token: str  # that it was launched with
    job_id: str  # for which it was
    ended: bool  # whether it has
    micro_usd: Fraction  # what it has cost; whole seconds at a constant price, so exact


def provider_records(state: Path, offers: Sequence[dict[str, Any]]) -> list[Entry]:
    """All instances that were ever born, from the state folder and the offers of a local provider."""
    found = []
    for folder in sorted((state / "instances").iterdir()):
        if not (folder / "init.json").exists():
            continue
        record = json.loads((folder / "instance.json").read_bytes())
        launched_s = json.loads((folder / "init.json").read_bytes())["launched_s"]
        offer = next(one for one in offers if _offer_id(one) == record["offer_id"])
        ended_s = record["ended_s"]
        # Microseconds: what epoch seconds resolve.
        ran_us = round(((ended_s or launched_s) - launched_s) * 1e6)
        seconds = max(ceil(Fraction(max(ran_us, 0), 10**6)), offer["billing_minimum_s"])
        price = round(offer["price_usd_hour"] * 1e6)
        cost = Fraction(seconds * price, 3600)
        found.append(Entry(record["client_token"], record["job_id"], ended_s is not None, cost))
    return found


def _offer_id(offer: dict[str, Any]) -> str:
    return f"local/{offer.get('zone') or offer['region']}/{offer['instance_type']}/{offer['market']}"


# A deployment that is served by a process of its own, which may be killed at any moment.


START_S = 120.0
_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
QUICK = {
    "spark.driver.extraJavaOptions": _JAVA,
    "spark.executor.extraJavaOptions": _JAVA,
    "spark.driver.memory": "512m",
}
"""Settings with which Spark starts sooner."""


class Deployment:
    """Serves from `folder`; started again whenever it was killed, as a service manager would.

    `data` is by region: the folder that its cluster keeps.
    """

    def __init__(
        self, folder: Path, offers: Sequence[dict[str, Any]] = OFFERS, data: Mapping[str, Path] | None = None
    ) -> None:
        self.folder = folder.resolve()
        self.state = self.folder / "state"
        self.trap = self.folder / "trap.json"
        self.log = self.folder / "serve.log"
        self.offers = offers
        self.starts = 0
        self._killed = False
        with socket.create_server(("127.0.0.1", 0)) as probe:
            port = probe.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        local = {"state": str(self.state / "local"), "imds_poll_s": 0.5, "offers": list(offers)}
        (self.folder / "local.yaml").write_text(yaml.safe_dump(local))
        kept = {region: str(path) for region, path in (data or {}).items()}
        config = {
            "state": str(self.state),
            # What waits for the gate saves nothing meanwhile: it would fail after a few killed workers.
            "scheduler": {"period_s": 1, "ask_again_s": 2, "cool_down_s": 5, "failures_most": 1000},
            "http": {"port": port, "tokens": False},
            # All jobs of a test write one ledger, which a sandbox would keep them from.
            "runners": {"sandbox": "none", "trust_submitters": True, "data": kept},
            "providers": {"local": "local.yaml"},
        }
        (self.folder / "deployment.yaml").write_text(yaml.safe_dump(config))
        self._popen: subprocess.Popen[bytes]
        self.provider = LocalProvider(LocalConfig.load(self.folder / "local.yaml"))
        self.start()
        self.store = Store.open(f"sqlite:///{self.state / 'store.db'}", time.time())

    # The service's process.

    def start(self) -> None:
        self._killed = False
        self.starts += 1
        files = (str(self.trap), str(self.folder / "deployment.yaml"))
        call = [sys.executable, "-m", "tests.deploy.chaos.serve", *files]
        with self.log.open("ab") as log:
            self._popen = subprocess.Popen(
                call, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )

    def kill(self) -> None:
        self._popen.kill()
        self._popen.wait()
        self.start()

    def set_trap(self, point: str, after: int) -> None:
        """Let it kill itself at a point; see `serve.py`."""
        self.trap.write_text(json.dumps({"point": point, "after": after}))

    def look(self) -> None:
        """Start it again if the trap has sprung. Any other end is a failure."""
        code = self._popen.poll()
        if code is None:
            return
        assert code == -signal.SIGKILL, f"the service ended with {code}: {self.last_words()}"
        assert not self.trap.exists(), f"the service was killed by something else: {self.last_words()}"
        self.start()

    def passes(self) -> float:
        """Epoch seconds of its latest pass; 0 if it does not answer, or has made none since its start."""
        try:
            answer = httpx.get(f"{self.url}/readyz", timeout=5.0, trust_env=False)
            return float(answer.raise_for_status().json()["last_pass_s"])
        except (httpx.HTTPError, KeyError):
            return 0.0

    def end(self) -> int:
        """SIGTERM. Returns the exit code."""
        self._popen.terminate()
        return self._popen.wait(timeout=START_S)

    def destroy(self) -> None:
        """After a failure: leave nothing behind."""
        self._popen.kill()
        self._popen.wait()
        self.store.close()
        with suppress(Exception):
            self.provider.terminate([one.instance_id for one in self.provider.describe(self.deployment_id)])
        procfs.kill_all(lambda seen: [one for one in seen if one.alive and self._is_ours(one.pid)])

    def last_words(self) -> str:
        """The end of its log, without its requests."""
        lines = self.log.read_text(errors="replace").splitlines()
        return "\n".join([line for line in lines if "request [server]" not in line][-40:])

    # What it does.

    @property
    def deployment_id(self) -> str:
        return self.store.deployment_id

    def wait_for(self, found: Callable[[], T], what: str, within_s: float) -> T:
        """Wait for something that has to come, and keep the service up meanwhile; gives what was found."""
        end = time.monotonic() + within_s
        while True:
            self.look()
            if seen := found():
                return seen
            assert time.monotonic() < end, f"{what} did not come in {within_s:.0f} s: {self.last_words()}"
            time.sleep(0.5)

    def submit(self, spec: dict[str, Any], folder: Path, names: Sequence[str]) -> str:
        files = {name: base64.b64encode((folder / name).read_bytes()).decode() for name in names}
        body = {"spec": spec, "files": files, "request_id": f"chaos-{spec['name']}"}

        def taken() -> str:
            with suppress(httpx.TransportError):
                answer = httpx.post(f"{self.url}/v1/jobs", json=body, timeout=30.0, trust_env=False)
                assert answer.status_code in (200, 201), answer.text
                return str(answer.json()["job_id"])
            return ""

        return self.wait_for(taken, f"an answer to the submission of {spec['name']}", START_S)

    def jobs(self) -> dict[str, Job]:
        return {job.job_id: job for job in self.store.jobs.latest(100)}

    def over(self) -> bool:
        """Whether every job has ended and nothing is left to do."""
        idle = not (self.store.jobs.live() or self.store.instances.live() or self.store.intents.pending())
        failed = [
            f"{job.job_id}: {job.reason}" for job in self.jobs().values() if job.state == JobState.FAILED
        ]
        assert not failed, f"{failed}: {self.last_words()}"
        return idle

    def running(self) -> list[str]:
        """The provider's names of its running instances, in the order in which they were asked for."""
        reports = self.provider.describe(self.deployment_id)
        return [one.instance_id for one in reports if one.state is InstanceState.RUNNING]

    def processes(self, program: str) -> list[procfs.Process]:
        """Processes of this deployment with this text in their command line, the oldest first."""
        found = [one for one in procfs.scan() if one.alive and self._is_ours(one.pid)]
        return sorted(
            (one for one in found if program in _command(one.pid) and "launcher" not in _command(one.pid)),
            key=lambda one: (one.start_ticks, one.pid),
        )

    def leftovers(self) -> list[str]:
        """Command lines of everything that still runs for this deployment."""
        return [_command(one.pid)[:300] for one in procfs.scan() if one.alive and self._is_ours(one.pid)]

    def _is_ours(self, pid: int) -> bool:
        if pid == os.getpid():
            return False
        mark = str(self.folder)
        return mark in _command(pid) or any(mark in value for value in procfs.environment(pid).values())


@contextmanager
def serving(folder: Path, *what: Any) -> Iterator[Deployment]:
    """One that is ready, of which nothing is left afterwards; arguments as `Deployment`."""
    made = Deployment(folder, *what)
    try:
        made.wait_for(made.passes, "the service", START_S)
        yield made
    finally:
        made.destroy()


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""
