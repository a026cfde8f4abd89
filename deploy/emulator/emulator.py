"""An emulated cloud, as the control interface and the server know it."""

from __future__ import annotations

import importlib.util
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deploy.emulator.config import EmulatorConfig
from deploy.emulator.faults import Faults
from deploy.emulator.ledger import Entry, entry, total_usd
from deploy.emulator.world import World
from deploy.yamlfile import ConfigError

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIApplication


class Emulator(ABC):
    """One account of one cloud.

    Attributes:
        calls: how often each action was called.
    """

    config: EmulatorConfig
    world: World[Any]
    free_first_s: float = 0.0
    """What the cloud ends sooner after its start costs nothing."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()

    @property
    def faults(self) -> Faults:
        """Injected faults."""
        return self.world.faults

    @abstractmethod
    def app(self) -> WSGIApplication:
        """WSGI application that answers clients."""

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
    if importlib.util.find_spec("werkzeug") is None:
        raise ConfigError("emulators need werkzeug and moto: pip install 'spotweave[dev]'")
    if cloud == "aws":
        from deploy.emulator.aws.config import AwsEmulatorConfig
        from deploy.emulator.aws.emulator import AwsEmulator

        return AwsEmulator(AwsEmulatorConfig.load(path))
    if cloud == "gcp":
        from deploy.emulator.gcp.config import GcpEmulatorConfig
        from deploy.emulator.gcp.emulator import GcpEmulator

        return GcpEmulator(GcpEmulatorConfig.load(path))
    raise ConfigError(f"no cloud {cloud!r} is emulated: expected {', '.join(CLOUDS)}")
