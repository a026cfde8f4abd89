"""The agent of one instance: its processes, its files, its interruption notice, behind HTTPS."""

from __future__ import annotations

import fcntl
import json
import logging
import os
import signal
import ssl
import sys
import time
from pathlib import Path

from spotweave.deploy.node import procfs
from spotweave.deploy.node.api import NodeStatus
from spotweave.deploy.node.config import STATE_FOLDER, STATUS_FILE, AgentConfig
from spotweave.deploy.node.gpus import VISIBLE, GpuWatch, Seen
from spotweave.deploy.node.metadata import Watcher, service
from spotweave.deploy.node.processes import Processes
from spotweave.deploy.node.server import AgentServer, tls_context
from spotweave.deploy.statefile import StateFile
from spotweave.deploy.yamlfile import ConfigError
from spotweave.files import write_private

_log = logging.getLogger(__name__)


class _Memory(StateFile):
    notice_s: float | None = None
    rebalance: bool = False


class Agent:
    """Serves until it is told to stop; the processes stay, and the next agent finds them.

    Making one raises ConfigError if the working folder or the address cannot be used, or is taken.
    """

    def __init__(self, config: AgentConfig) -> None:
        self._config = config
        self.workdir = Path(config.workdir)
        self.token = config.token
        self._folder = self.workdir / STATE_FOLDER
        try:
            self.workdir.mkdir(parents=True, exist_ok=True)
            self._folder.mkdir(mode=0o700, exist_ok=True)
            self._lock = (self._folder / "lock").open("w")
        except OSError as error:
            raise ConfigError(f"workdir {self.workdir}: {error.strerror}") from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise ConfigError(f"another agent runs in {self.workdir}: end it first") from error
        procfs.adopt_orphans()
        try:
            context = tls_context(config.certificate, config.key, self._folder / "tls.pem")
        except ssl.SSLError as error:
            raise ConfigError(f"certificate and key: expected a pair in PEM: {error.reason}") from error
        except OSError as error:
            raise ConfigError(f"workdir {config.workdir}: {error.strerror}") from error
        try:
            self._server = AgentServer(str(config.address), config.port, self, context)
        except OSError as error:
            raise ConfigError(f"cannot listen on {config.address}:{config.port}: {error.strerror}") from error
        self._memory_file = self._folder / "notice.json"
        self._memory = _Memory.load(self._memory_file) or _Memory()
        given = {} if config.gpus is None else {VISIBLE: ",".join(config.gpus)}
        self.processes = Processes(config.instance_id, self.workdir, self._folder, given)
        self._gpus = GpuWatch() if config.gpus != () else None
        self._watcher: Watcher | None = None

    def run(self) -> None:
        """Serve until `stop`."""
        host, port = str(self._config.address), self._server.port
        own = procfs.read(os.getpid())
        assert own is not None
        write_private(
            self._folder / STATUS_FILE,
            json.dumps({"address": host, "port": port, "pid": own.pid, "start_ticks": own.start_ticks}),
        )
        if self._config.imds_url is not None:
            metadata = service(self._config.metadata, self._config.imds_url)
            self._watcher = Watcher(metadata, self._config.imds_poll_s, self._notice, self._rebalance)
        _log.info("node %s on %s:%d", self._config.instance_id, host, port)
        self._server.serve_forever(poll_interval=0.5)

    def stop(self) -> None:
        """End `run`; from another thread."""
        self._server.shutdown()

    def close(self) -> None:
        """Let go of everything but the processes."""
        if self._watcher is not None:
            self._watcher.close()
        if self._gpus is not None:
            self._gpus.close()
        self.processes.close()
        self._server.server_close()
        self._lock.close()

    def status(self) -> NodeStatus:
        """The heartbeat. A node that was given notice is draining, also just before `drain` takes effect."""
        memory, mine = self._memory, self._config.gpus
        seen = Seen() if self._gpus is None else self._gpus.seen()
        if seen is not None and mine is not None:
            seen = seen.only(mine)
        return NodeStatus(
            instance_id=self._config.instance_id,
            address=str(self._config.address),
            workdir=str(self.workdir),
            now_s=time.time(),
            notice_s=memory.notice_s,
            rebalance=memory.rebalance,
            draining=memory.notice_s is not None or self.processes.draining,
            processes=self.processes.statuses(),
            gpus=None if seen is None else seen.gpus,
            no_gpus="" if seen is None else seen.problem[:1000],
        )

    def drain(self) -> None:
        """Prepare to end: no new processes, stop signals to all that run."""
        if not self.processes.draining:
            _log.warning("draining")
        self.processes.drain()

    def _notice(self, notice_s: float) -> None:
        _log.warning("the provider ends this instance in %.0f s", notice_s - time.time())
        self._remember(self._memory.model_copy(update={"notice_s": notice_s}))
        self.drain()

    def _rebalance(self) -> None:
        _log.info("the provider recommends to leave this instance")
        self._remember(self._memory.model_copy(update={"rebalance": True}))

    def _remember(self, memory: _Memory) -> None:
        self._memory = memory
        try:
            memory.save(self._memory_file)
        except OSError as error:
            # A job may have filled the disk. It is told all the same.
            _log.error("%s cannot be written: %s", self._memory_file, error.strerror)


def serve(config: AgentConfig) -> None:
    """Run an agent in this process until SIGTERM or SIGINT. Raises ConfigError."""
    logging.basicConfig(
        level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s %(message)s"
    )
    agent = Agent(config)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.default_int_handler)
    try:
        agent.run()
    except KeyboardInterrupt:
        _log.info("stopped; processes stay")
    finally:
        agent.close()
