"""What really runs of an instance: nothing, or a group of processes."""

from __future__ import annotations

from deploy.emulator.records import Instance


class NoMachines:
    """Instances are states only."""

    def __init__(self) -> None:
        self._addresses = 0

    def start(self, instance: Instance) -> None:
        """Nothing starts."""

    def fate(self, instance: Instance) -> None:
        """Nobody looks."""

    def stop(self, instance: Instance) -> None:
        """Nothing runs."""

    def address(self, taken: set[str]) -> str:
        """In 10/8."""
        self._addresses += 1
        number = self._addresses
        return f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}"

    def close(self) -> None:
        """Nothing runs."""


class Processes(NoMachines):
    def __init__(self, config) -> None: ...
