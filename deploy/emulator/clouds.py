"""Which clouds can be emulated."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from deploy.emulator.emulator import Emulator
from deploy.yamlfile import ConfigError

CLOUDS = ("aws", "gcp")


def load(cloud: str, path: Path) -> Emulator:
    """An emulator as its file says.

    Args:
        cloud: one of `CLOUDS`.
        path: of its configuration.

    Raises:
        ConfigError: one line, if it cannot be used.
    """
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
