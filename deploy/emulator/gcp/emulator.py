"""An emulated Google Cloud project: its world, served over HTTP by `app`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deploy.emulator.emulator import Emulator
from deploy.emulator.gcp.config import GcpEmulatorConfig
from deploy.emulator.gcp.world import GceWorld
from deploy.model.clock import Clock

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIApplication


VARIABLE = "COMPUTE_EMULATOR_HOST"
"""Environment variable with the emulator's address, named like Google's own STORAGE_EMULATOR_HOST."""


class GcpEmulator(Emulator):
    """Any number of them fit into a process. Raises ConfigError if a recording cannot be used."""

    def __init__(self, config: GcpEmulatorConfig, clock: Clock | None = None) -> None:
        super().__init__()
        self.config: GcpEmulatorConfig = config
        self.world: GceWorld = GceWorld(config, clock)

    def app(self) -> WSGIApplication:
        """See Emulator."""
        from deploy.emulator.gcp.app import App

        return App(self)

    def environment(self, url: str) -> dict[str, str | None]:
        """See Emulator."""
        return {VARIABLE: url}
