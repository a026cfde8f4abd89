"""An emulated AWS account: its world, resources and API actions, served over HTTP by `app`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from moto.ec2.models.instance_types import INSTANCE_TYPES

from deploy.emulator.aws.account import Account, simulate
from deploy.emulator.aws.config import AwsEmulatorConfig
from deploy.emulator.aws.instances import InstanceActions
from deploy.emulator.aws.market import MarketActions
from deploy.emulator.aws.world import Ec2World, make_queue
from deploy.emulator.emulator import Emulator
from deploy.model.clock import Clock
from deploy.yamlfile import ConfigError

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIApplication


class AwsEmulator(Emulator):
    """One at a time per process, because moto's state is the process's.

    Raises:
        ConfigError: if a recording cannot be used, or AWS has no such instance type.
    """

    free_first_s = 3600.0

    def __init__(self, config: AwsEmulatorConfig, clock: Clock | None = None) -> None:
        for pool in config.pools:
            if pool.instance_type not in INSTANCE_TYPES:
                raise ConfigError(f"pools: AWS has no instance type {pool.instance_type!r}")
        super().__init__()
        self.config: AwsEmulatorConfig = config
        self.account = Account(config)
        self.world: Ec2World = Ec2World(config, clock)
        # What moto has not, or not truly; moto answers the rest.
        self.actions = {
            **InstanceActions(self.world, self.account).table,
            **MarketActions(self.world, self.account).table,
            ("iam", "SimulatePrincipalPolicy"): lambda region, params: simulate(config.denied, params),
        }
        if config.events_queue is not None:
            for region in config.regions:
                make_queue(region, config.events_queue)

    def app(self) -> WSGIApplication:
        """See Emulator."""
        from deploy.emulator.aws.app import App

        return App(self)

    def environment(self, url: str) -> dict[str, str | None]:
        """See Emulator: the SDK finds these before all else."""
        return {
            "AWS_ENDPOINT_URL": url,
            "AWS_ACCESS_KEY_ID": "emulated",
            "AWS_SECRET_ACCESS_KEY": "emulated",
            "AWS_PROFILE": None,
            "AWS_SESSION_TOKEN": None,
        }
