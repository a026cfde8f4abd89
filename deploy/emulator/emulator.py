"""An emulated AWS account: its world, resources and API actions, served over HTTP by `app`."""

from __future__ import annotations

from collections import Counter

from deploy.emulator.account import Account
from deploy.emulator.actions import InstanceActions
from deploy.emulator.config import EmulatorConfig
from deploy.emulator.events import make_queue
from deploy.emulator.faults import Faults
from deploy.emulator.identities import IdentityActions
from deploy.emulator.ledger import Entry, entry
from deploy.emulator.lists import ListActions
from deploy.emulator.machines import NoMachines, Processes
from deploy.emulator.market import Market
from deploy.emulator.spot import SpotActions
from deploy.emulator.world import Machines, World
from deploy.model.clock import Clock, SystemClock, VirtualClock


class Emulator:
    """One at a time per process, because moto's state is the process's.

    Args:
        config: what is emulated.
        clock: None: as configured.

    Raises:
        ConfigError: if a recording cannot be used.
    """

    def __init__(self, config: EmulatorConfig, clock: Clock | None = None) -> None:
        self.config = config
        if clock is None:
            clock = SystemClock() if config.clock == "real" else VirtualClock(config.start_s)
        market = Market(config, clock.now())
        self.account = Account(config)
        machines: Machines = Processes(config) if config.machines == "processes" else NoMachines()
        self.world = World(config, clock, market, machines)
        self.faults: Faults = self.world.faults
        # What moto has not, or not truly; moto answers the rest.
        self.actions = {
            **InstanceActions(self.world, self.account).table,
            **SpotActions(self.world, self.account).table,
            **ListActions(self.world).table,
            **IdentityActions(config.denied).table,
        }
        self.calls: Counter[str] = Counter()
        if config.events_queue is not None:
            for region in config.regions:
                make_queue(region, config.events_queue)

    def advance(self, seconds: float) -> None:
        """Let virtual time pass, and everything happen at its time."""
        with self.world.lock:
            self.world.clock.sleep(seconds)
            self.world.settle()

    def ledger(self) -> list[Entry]:
        """Every instance's bill."""
        with self.world.lock:
            self.world.settle()
            now_s = self.world.now_s()
            gp3 = self.config.gp3_usd_gib_month
            return [
                entry(self.world.market, one, gp3[one.region], now_s) for one in self.world.instances.values()
            ]

    def close(self) -> None:
        """End everything that runs."""
        with self.world.lock:
            self.world.machines.close()
