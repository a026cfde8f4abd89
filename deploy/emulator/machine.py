"""`python -m spotweave.deploy.emulator.machine FOLDER`: one instance from inside.

Its metadata service answers on its own address; then it boots: user data as cloud-init would do it. It ends
when the emulator ends it, or when there is no emulator any more.
"""

from __future__ import annotations

import configparser
import json
import logging
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import yaml

from spotweave.deploy.emulator.machines import FATE_FILE, HARDWARE_FILE, USER_DATA_FILE
from spotweave.deploy.node import procfs
from spotweave.deploy.node.metadata import FLAVOR, ROOT, VARIABLES
from spotweave.deploy.node.server import Listener, QuietHandler
from spotweave.deploy.providers.local.machine import MetadataServer
from spotweave.deploy.providers.local.records import Fate

_UNITS = "/etc/systemd/system"


class _Service:
    """A systemd service of type simple, restarted as its unit says."""

    def __init__(
        self, command: list[str], environment: dict[str, str], folder: Path, restart_s: float | None
    ) -> None:
        self._command, self._environment, self._folder = command, environment, folder
        self._restart_s, self._again_s = restart_s, 0.0
        self._start()

    def _start(self) -> None:
        self._process = subprocess.Popen(
            self._command, env=self._environment, cwd=self._folder, stdin=subprocess.DEVNULL
        )
        self._ended = False

    def supervise(self) -> None:
        code = self._process.poll()
        now_s = time.monotonic()
        if code is not None and not self._ended:
            _log.info("service ended with %d", code)
            self._ended, self._again_s = True, now_s + (self._restart_s or 0.0)
        if self._ended and code != 0 and self._restart_s is not None and now_s >= self._again_s:
            self._start()


class Boot:
    """Boots a new instance, below a folder that is / to it."""

    def __init__(self, root: Path, user_data: str, environment: dict[str, str]) -> None:
        self._root, self._text, self._environment = root, user_data, environment
        root.mkdir(parents=True, exist_ok=True)
        self._services: list[_Service] = []
        self._moved: re.Pattern[str] | None = None

    def start(self) -> None:
        """Do what user data says."""
        if self._text.startswith("#cloud-config"):
            self._cloud_config(yaml.safe_load(self._text))
        elif self._text.startswith("#!"):
            script = self._root / "user-data.sh"
            script.write_text(self._text)
            script.chmod(0o700)
            self._run([str(script)])
        elif self._text:
            _log.error("user data begins with neither #cloud-config nor #!: ignored")

    def supervise(self) -> None:
        """Restart what its unit says, and take leave of the dead."""
        for service in self._services:
            service.supervise()

    def _cloud_config(self, content: dict[str, Any]) -> None:
        commands = [shlex.split(one) if isinstance(one, str) else one for one in content.get("runcmd", [])]
        folders = [one[-1] for one in commands if one[:2] == ["install", "-d"]]
        files = content.get("write_files", [])
        paths = sorted({*folders, *(file["path"] for file in files)}, key=len, reverse=True)
        if paths:
            self._moved = re.compile("|".join(re.escape(path) for path in paths))
        for file in files:
            path = Path(self._below(file["path"]))
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(self._below(file.get("content", "")))
            path.chmod(int(file.get("permissions", "0644"), 8))
        for given, words in zip(content.get("runcmd", []), commands, strict=True):
            if words[:3] == ["systemctl", "enable", "--now"]:
                self._enable(words[3])
            elif words[:2] == ["systemctl", "daemon-reload"]:
                continue
            elif words[:2] == ["install", "-d"]:
                Path(self._below(words[-1])).mkdir(mode=0o700, parents=True, exist_ok=True)
            elif isinstance(given, str):
                self._run(["/bin/sh", "-c", self._below(given)])
            else:
                self._run([self._below(word) for word in given])

    def _enable(self, name: str) -> None:
        unit = configparser.ConfigParser(interpolation=None, strict=False)
        unit.read(self._below(f"{_UNITS}/{name}"))
        service = unit["Service"]
        command = shlex.split(service["ExecStart"])
        # The image's own interpreter is not on this machine.
        if command[0].endswith("python") and not Path(command[0]).exists():
            command[0] = sys.executable
        restart_s = (
            float(service.get("RestartSec", "0.1")) if service.get("Restart") == "on-failure" else None
        )
        self._services.append(_Service(command, self._environment, self._root, restart_s))

    def _run(self, command: list[str]) -> None:
        done = subprocess.run(
            command, env=self._environment, cwd=self._root, stdin=subprocess.DEVNULL, check=False
        )
        if done.returncode != 0:
            _log.error("%s ended with %d", os.path.basename(command[0]), done.returncode)

    def _below(self, text: str) -> str:
        return self._moved.sub(lambda found: f"{self._root}{found[0]}", text) if self._moved else text


class GceMetadataServer(Listener):
    """Answers for one instance, of whose fate it asks."""

    def __init__(self, hardware: dict[str, Any], fate: Callable[[], Fate]) -> None:
        self._texts: dict[str, str] = hardware["metadata"]
        self._fate = fate
        super().__init__(hardware["address"], 0, _Handler)

    def environment(self) -> dict[str, str]:
        """Environment variables with the address, for programs of the instance."""
        return {VARIABLES["gce"]: f"{self.server_address[0]!s}:{self.port}"}

    def answer(self, path: str) -> str | None:
        """The text at a path below /computeMetadata/v1/instance/; None: there is nothing."""
        if path == "preempted":
            notice_s = self._fate().notice_s
            return "TRUE" if notice_s is not None and time.time() >= notice_s else "FALSE"
        if path == "maintenance-event":
            advice_s = self._fate().rebalance_s
            told = advice_s is not None and time.time() >= advice_s
            return "TERMINATE_ON_HOST_MAINTENANCE" if told else "NONE"
        return self._texts.get(path)


class _Handler(QuietHandler):
    server: GceMetadataServer

    def do_GET(self) -> None:  # noqa: N802
        """Metadata, for those only that say what they ask: a browser led here does not."""
        if self.headers.get(FLAVOR) != "Google" or "X-Forwarded-For" in self.headers:
            self.send(403, b"Missing Metadata-Flavor:Google header.")
            return
        text = self.server.answer(self.path.removeprefix(ROOT)) if self.path.startswith(ROOT) else None
        self.send(404 if text is None else 200, (text or "").encode(), "application/text")

    def end_headers(self) -> None:
        self.send_header(FLAVOR, "Google")
        super().end_headers()


_LOOK_S = 0.5
_log = logging.getLogger(__name__)


class Ec2Metadata(MetadataServer):
    """IMDSv2 on the instance's own address, with what EC2 tells besides an instance's end."""

    def __init__(self, hardware: dict[str, Any], fate: Callable[[], Fate]) -> None:
        self._texts: dict[str, str] = hardware["metadata"]
        super().__init__(hardware["address"], hardware["instance_id"], fate)

    def environment(self) -> dict[str, str]:
        """Environment variables with the address, for programs of the instance."""
        return {VARIABLES["ec2"]: self.url}

    def answer(self, path: str) -> str | None:
        """The text at a path; None: there is nothing."""
        return self._texts.get(path) or super().answer(path)


_SERVICES: dict[str, type[Ec2Metadata] | type[GceMetadataServer]] = {
    "aws": Ec2Metadata,
    "gcp": GceMetadataServer,
}


def main() -> int:
    """Live until killed."""
    os.umask(0o077)
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)s %(message)s")
    folder = Path(sys.argv[1])
    hardware = json.loads((folder / HARDWARE_FILE).read_bytes())
    # What its processes leave behind is its child, as it would be init's.
    procfs.adopt_orphans()

    def fate() -> Fate:
        return Fate.model_validate_json((folder / FATE_FILE).read_bytes())

    metadata = _SERVICES[hardware["cloud"]](hardware, fate)
    metadata.start()
    environment = {**os.environ, **metadata.environment()}
    boot = Boot(folder / "root", (folder / USER_DATA_FILE).read_text(encoding="utf-8"), environment)
    boot.start()
    while procfs.is_alive(hardware["owner_pid"], hardware["owner_ticks"]):
        boot.supervise()
        time.sleep(_LOOK_S)
    _log.warning("the emulator has gone")
    me = os.getpid()
    procfs.kill_all(
        lambda seen: [one for one in seen if one.alive and one.pid in procfs.descendants({me}, seen)]
    )
    with suppress(OSError):
        os.kill(me, signal.SIGKILL)
    return 1


if __name__ == "__main__":
    sys.exit(main())
