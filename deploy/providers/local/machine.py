"""One instance from inside: its init process, which is its hypervisor; the node agent is its child.

It knows from its record when the market takes it away, serves the notice, and switches itself off at that
time, whether or not anyone looks. What it does not live to do, `LocalProvider.describe` does. The init has
the scheduler's rights and runs nothing but this; the agent, with all that jobs run, is in a sandbox.
"""

from __future__ import annotations

import json
import logging
import os
import secrets
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType

from spotweave.deploy.node import procfs
from spotweave.deploy.node.config import STATE_FOLDER, AgentConfig
from spotweave.deploy.node.gpus import device_files
from spotweave.deploy.node.server import Listener, QuietHandler
from spotweave.deploy.providers.local.records import Fate, Record, StateError, StateFolder, box_name
from spotweave.deploy.security.sandbox import Box, Boxed
from spotweave.files import write_private

# A loopback instance metadata service (IMDSv2), one per instance, as EC2 documents it.
#
# https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/instancedata-data-retrieval.html

_TTL = "X-aws-ec2-metadata-token-ttl-seconds"
_TOKEN = "X-aws-ec2-metadata-token"
_MAX_TTL_S = 21600
_MAX_TOKENS = 1000


class MetadataServer(Listener):
    """Answers for one instance, of whose fate it asks."""

    def __init__(self, address: str, instance_id: str, fate: Callable[[], Fate]) -> None:
        self._instance_id, self._fate = instance_id, fate
        self._tokens: dict[str, float] = {}
        self._lock = threading.Lock()
        super().__init__(address, 0, _Handler)

    @property
    def url(self) -> str:
        """Root of the service."""
        host = str(self.server_address[0])
        return f"http://{host}:{self.port}"

    def new_token(self, ttl_s: int) -> str:
        """A session."""
        token = secrets.token_urlsafe(32)
        with self._lock:
            now = time.monotonic()
            self._tokens = {name: end for name, end in self._tokens.items() if end > now}
            while len(self._tokens) >= _MAX_TOKENS:
                del self._tokens[next(iter(self._tokens))]
            self._tokens[token] = now + ttl_s
        return token

    def knows(self, token: str) -> bool:
        """Whether a session is still valid."""
        with self._lock:
            return self._tokens.get(token, 0.0) > time.monotonic()

    def answer(self, path: str) -> str | None:
        """The text at a path below /latest/meta-data/; None: there is nothing."""
        now, fate = time.time(), self._fate()
        if path == "instance-id":
            return self._instance_id
        if path == "events/recommendations/rebalance" and fate.rebalance_s is not None:
            if now >= fate.rebalance_s:
                return json.dumps({"noticeTime": _utc(fate.rebalance_s)})
        elif (
            path == "spot/instance-action"
            and fate.notice_s is not None
            and fate.kill_s is not None
            and now >= fate.notice_s
        ):
            return json.dumps({"action": "terminate", "time": _utc(fate.kill_s)})
        return None


class _Handler(QuietHandler):
    server: MetadataServer

    def do_PUT(self) -> None:  # noqa: N802
        ttl = self.headers.get(_TTL, "")
        if self.path != "/latest/api/token":
            self.send(404, b"")
        elif not ttl.isdecimal() or not 1 <= int(ttl[:6]) <= _MAX_TTL_S or "X-Forwarded-For" in self.headers:
            self.send(400, b"")
        else:
            self.send(200, self.server.new_token(int(ttl)).encode(), "text/plain")

    def do_GET(self) -> None:  # noqa: N802
        if not self.server.knows(self.headers.get(_TOKEN, "")):
            self.send(401, b"")
            return
        prefix = "/latest/meta-data/"
        text = self.server.answer(self.path.removeprefix(prefix)) if self.path.startswith(prefix) else None
        if text is None:
            self.send(404, b"")
        else:
            self.send(200, text.encode(), "text/plain")


def _utc(time_s: float) -> str:
    return datetime.fromtimestamp(time_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


_BEAT_S = 1.0
_log = logging.getLogger(__name__)


def _ignore(number: int, frame: FrameType | None) -> None:
    """A machine does not end by a polite signal. SIG_IGN would be inherited by its processes."""


class Machine:
    """Runs until it is killed, by others or by itself."""

    def __init__(self, state: Path, name: str) -> None:
        logging.basicConfig(
            level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s %(message)s"
        )
        self._state = StateFolder(state)
        self._name = name
        self._record = self._read()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, _ignore)

    def run(self) -> None:
        """Live."""
        self._limit()
        record = self._record
        self._beat()
        threading.Thread(target=self._watch, name="hypervisor", daemon=True).start()
        metadata = MetadataServer(record.address, record.instance_id, self._fate)
        metadata.start()
        init = self._state.init(self._name)
        assert init is not None
        left_s = init.launched_s + record.launch_s - time.time()
        if left_s > 0:
            time.sleep(left_s)
        config = AgentConfig.model_validate(
            {
                "instance_id": record.instance_id,
                "address": record.address,
                "workdir": str(self._state.workdir(self._name)),
                "token": record.node_token,
                "certificate": record.certificate,
                "key": record.key,
                "imds_url": metadata.url,
                "imds_poll_s": record.imds_poll_s,
                "gpus": tuple(record.gpus),
            }
        )
        _log.error("the node agent ended with %d", self._run_agent(config))
        self._kill_others()
        # An interruption that is going on ends this process itself, when it has written down that it did.
        with self._state.locked():
            pass

    def _run_agent(self, config: AgentConfig) -> int:
        """Run the agent, which has no more rights than the jobs that it runs. Returns its exit code."""
        workdir = Path(config.workdir)
        file = workdir / STATE_FOLDER / "config.json"
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_private(file, json.dumps(config.model_dump(mode="json")))
        argv = [sys.executable, "-m", "spotweave.deploy.node", "--config", str(file)]
        boxed = Boxed(argv, dict(os.environ), None)
        sandbox = self._state.sandbox(self._name)
        if sandbox is not None:
            # Executors write where the driver does.
            files = sandbox.job_folder(self._record.job_id)
            writable = (workdir, files) if files.is_dir() else (workdir,)
            tmp = self._state.folder(self._name) / "tmp"
            gpus = device_files(self._record.gpus.values())
            box = Box(box_name(self._name), self._record.job_id, writable, tmp, devices=gpus)
            boxed = sandbox.wrap(argv, os.environ, workdir, box)
        self._state.save_group(self._name, boxed.group)
        # Jobs' processes may outlive the agent, and even leave their variables behind.
        procfs.adopt_orphans()
        stdin = boxed.stdin()
        agent = subprocess.Popen(
            boxed.argv, env=boxed.env, cwd=workdir, stdin=stdin, preexec_fn=procfs.die_with_parent
        )
        os.close(stdin)
        return agent.wait()

    def _limit(self) -> None:
        # No limit on memory: RLIMIT_AS and RLIMIT_DATA count what a JVM reserves and never uses, and end it.
        if self._record.cpus:
            os.sched_setaffinity(0, self._record.cpus)
        procfs.yield_to_scheduler()

    def _read(self) -> Record:
        record = self._state.find(self._name)
        if record is None:
            raise StateError(f"no record of instance {self._name} in {self._state.path}")
        return record

    def _fate(self) -> Fate:
        """As it is on the disk now: `interrupt` changes it."""
        return self._read().fate

    def _beat(self) -> None:
        (self._state.folder(self._name) / "alive").touch(mode=0o600)

    def _watch(self) -> None:
        try:
            while True:
                self._beat()
                kill_s = self._fate().kill_s
                left_s = _BEAT_S if kill_s is None else kill_s - time.time()
                if left_s <= 0:
                    self._switch_off()
                time.sleep(min(_BEAT_S, max(left_s, 0.001)))
        except (OSError, StateError):
            # Without its folder nobody could find it, or switch it off, any more.
            _log.exception("the state folder is lost")
            self._kill_others()
            os.kill(os.getpid(), signal.SIGKILL)

    def _switch_off(self) -> None:
        """The interruption: SIGKILL of everything, itself last."""
        with self._state.locked():
            record = self._read()
            if record.ending_s is None:
                record = record.changed(ending_s=time.time(), by_provider=True)
                self._state.save(record)
            if self._kill_others():
                self._state.save(record.changed(ended_s=time.time()))
            os.kill(os.getpid(), signal.SIGKILL)

    def _kill_others(self) -> bool:
        """End all but the init, for certain; False if something is left."""
        me = os.getpid()
        return procfs.kill_all(
            lambda seen: [one for one in self._state.members(self._name, seen) if one.pid != me]
        )
