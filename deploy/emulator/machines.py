"""What really runs of an instance: nothing, or a group of processes with a loopback address of its own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

from spotweave.deploy.emulator.config import EmulatorConfig
from spotweave.deploy.node import procfs
from spotweave.deploy.providers.local.records import StateError, StateFolder, loopback_address
from spotweave.deploy.yamlfile import ConfigError
from spotweave.files import write_private

if TYPE_CHECKING:
    from spotweave.deploy.emulator.world import Instance

HARDWARE_FILE = "hardware.json"
FATE_FILE = "fate.json"
USER_DATA_FILE = "user-data"


class Machines:
    """Runs instances; here they are states only, and nothing runs."""

    def __init__(self) -> None:
        self._addresses = 0

    def start(self, instance: Instance) -> None:
        """Start an instance whose state has become `running`."""

    def fate(self, instance: Instance) -> None:
        """Tell an instance that its fate has changed."""

    def stop(self, instance: Instance) -> None:
        """Stop an instance; nothing of it runs when this returns."""

    def address(self, taken: set[str]) -> str:
        """A free private address."""
        self._addresses += 1
        number = self._addresses
        return f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}"

    def close(self) -> None:
        """End everything."""


class Processes(Machines):
    """One process group for each running instance; what a killed emulator left behind is ended first.

    Making one raises ConfigError if the state folder cannot be used.
    """

    def __init__(self, config: EmulatorConfig) -> None:
        super().__init__()
        self._state = StateFolder(config.state_folder)
        try:
            self._state.create()
        except StateError as error:
            raise ConfigError(str(error)) from error
        self._children: dict[str, subprocess.Popen[bytes]] = {}
        self._sweep()
        # The instances of an emulator end with it, and so do their disks.
        for folder in (self._state.path / "instances").iterdir():
            shutil.rmtree(folder)

    def start(self, instance: Instance) -> None:
        """Boot it."""
        folder = self._state.folder(instance.instance_id)
        folder.mkdir(mode=0o700, exist_ok=True)
        own = procfs.read(os.getpid())
        assert own is not None
        hardware = {
            "instance_id": instance.instance_id,
            "address": instance.address,
            "owner_pid": os.getpid(),
            "owner_ticks": own.start_ticks,
            "cloud": instance.cloud,
            "metadata": instance.metadata,
        }
        write_private(folder / HARDWARE_FILE, json.dumps(hardware))
        write_private(folder / USER_DATA_FILE, instance.user_data)
        self.fate(instance)
        log = os.open(folder / "console.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            self._children[instance.instance_id] = subprocess.Popen(
                [sys.executable, "-m", "spotweave.deploy.emulator.machine", str(folder)],
                env=self._state.environment(instance.instance_id, folder / "root"),
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        finally:
            os.close(log)

    def fate(self, instance: Instance) -> None:
        """Tell its metadata service."""
        folder = self._state.folder(instance.instance_id)
        if folder.exists():
            write_private(folder / FATE_FILE, instance.fate.model_dump_json())

    def stop(self, instance: Instance) -> None:
        """Power off; its disk stays until the emulator ends."""
        self._end(instance.instance_id)

    def address(self, taken: set[str]) -> str:
        """A free loopback address."""
        return loopback_address(taken)

    def close(self) -> None:
        """End everything."""
        for name in list(self._children):
            self._end(name)
        self._sweep()

    def _sweep(self) -> None:
        for name in self._state.processes(list(procfs.scan())):
            self._end(name)

    def _end(self, name: str) -> None:
        """SIGKILL everything of an instance, first whatever could start more."""

        def members(seen: list[procfs.Process]) -> list[procfs.Process]:
            child = self._children.get(name)
            below = procfs.descendants({child.pid}, seen) | {child.pid} if child is not None else set()
            tagged = {one.pid for one in self._state.processes(seen).get(name, [])}
            return [one for one in seen if one.alive and one.pid in below | tagged]

        if not procfs.kill_all(members):
            raise RuntimeError(f"instance {name}: some of its processes cannot be killed")
        child = self._children.pop(name, None)
        if child is not None:
            child.wait()
