"""As much of cloud-init and systemd as user data here needs, below a folder instead of below /.

Done are `write_files`, `runcmd` (commands, `install -d`, `systemctl enable --now`) and scripts that begin
with `#!`. Every path that user data itself creates is moved below the instance's folder, wherever named.
"""

from __future__ import annotations

import configparser
import logging
import os
import re
import shlex
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import yaml

_BOOTED_FILE = ".booted"
_UNITS = "/etc/systemd/system"
_log = logging.getLogger(__name__)


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
    """Boots once as a new instance, later as one that was stopped, below a folder that is / to it."""

    def __init__(self, root: Path, user_data: str, environment: dict[str, str]) -> None:
        self._root, self._text, self._environment = root, user_data, environment
        root.mkdir(parents=True, exist_ok=True)
        self._services: list[_Service] = []
        self._moved: re.Pattern[str] | None = None

    def start(self) -> None:
        """Do what user data says; after a stop, only start what it had enabled."""
        again = (self._root / _BOOTED_FILE).exists()
        if self._text.startswith("#cloud-config"):
            self._cloud_config(yaml.safe_load(self._text), again=again)
        elif self._text.startswith("#!") and not again:
            script = self._root / "user-data.sh"
            script.write_text(self._text)
            script.chmod(0o700)
            self._run([str(script)])
        elif self._text and not again:
            _log.error("user data begins with neither #cloud-config nor #!: ignored")
        (self._root / _BOOTED_FILE).touch()

    def supervise(self) -> None:
        """Restart what its unit says, and take leave of the dead."""
        for service in self._services:
            service.supervise()

    def _cloud_config(self, content: dict[str, Any], *, again: bool) -> None:
        commands = [shlex.split(one) if isinstance(one, str) else one for one in content.get("runcmd", [])]
        folders = [one[-1] for one in commands if one[:2] == ["install", "-d"]]
        files = content.get("write_files", [])
        paths = sorted({*folders, *(file["path"] for file in files)}, key=len, reverse=True)
        if paths:
            self._moved = re.compile("|".join(re.escape(path) for path in paths))
        for file in files if not again else []:
            path = Path(self._below(file["path"]))
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(self._below(file.get("content", "")))
            path.chmod(int(file.get("permissions", "0644"), 8))
        for given, words in zip(content.get("runcmd", []), commands, strict=True):
            if words[:3] == ["systemctl", "enable", "--now"]:
                self._enable(words[3])
            elif again or words[:2] == ["systemctl", "daemon-reload"]:
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
        """With the instance's own paths moved below its folder."""
        return self._moved.sub(lambda found: f"{self._root}{found[0]}", text) if self._moved else text
