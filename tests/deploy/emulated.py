"""An emulated AWS on a port of its own, and deployments that rent from it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import botocore.session
import pytest
import yaml

from spotweave.deploy.emulator.aws.emulator import AwsEmulator
from spotweave.deploy.emulator.aws.wire import AwsEmulatorConfig
from spotweave.deploy.emulator.server import Server
from tests.deploy.cli.commands import deployment
from tests.deploy.emulator.aws.conftest import IMAGE, POOL, TYPE, ZONE, region

ZONES = (ZONE, "us-east-1b")


@dataclass
class Emulated:
    """One account, and a folder for the files of deployments."""

    emulator: AwsEmulator
    folder: Path

    def deployment(self, rented: dict[str, Any] | None = None, **changes: Any) -> Path:
        """The file of one that rents here, with changes of what is rented and of the rest."""
        rents = {
            "regions": {"us-east-1": region("us-east-1", ZONES)},
            "instance_types": {TYPE: {"quota": 2}},
            "node": {"scheduler_url": "http://127.0.0.1:8421"},
        }
        (self.folder / "aws.yaml").write_text(yaml.safe_dump({**rents, **(rented or {})}))
        return deployment(self.folder, **{"providers": {"aws": "aws.yaml"}, **changes})


Make = Callable[..., Emulated]


@contextmanager
def emulating(folder: Path, patch: pytest.MonkeyPatch) -> Iterator[Make]:
    """Makes accounts, one at a time, to which the SDK's own chain leads."""
    with ExitStack() as opened:

        def make(**changes: Any) -> Emulated:
            pools = [
                {**POOL, "zone": zone, "spot_usd_hour": usd}
                for zone, usd in zip(ZONES, (0.2, 0.3), strict=True)
            ]
            content = {"pools": pools, "images": [{"image_id": IMAGE}], "launch_s": 0, "shutdown_s": 0}
            emulator = AwsEmulator(AwsEmulatorConfig.model_validate({**content, **changes}))
            server = Server(emulator)
            server.start()
            opened.callback(server.close)
            patch.setenv("AWS_ENDPOINT_URL", server.url)
            return Emulated(emulator, folder)

        read_models_once(patch)
        patch.setenv("AWS_ACCESS_KEY_ID", "AKIAEMULATED00000000")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "not-a-secret")
        for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN"):
            patch.delenv(name, raising=False)
        yield make


# The SDK reads the models of AWS's services again for each session, which takes longer than most tests.
_LOADER = cache(botocore.session.create_loader)


def read_models_once(patch: pytest.MonkeyPatch) -> None:
    """Let all sessions of this process share what one of them has read."""
    patch.setattr(botocore.session, "create_loader", _LOADER)
