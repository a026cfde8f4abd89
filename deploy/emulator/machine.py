"""`python -m deploy.emulator.machine FOLDER`: one instance from inside.

Its metadata service answers on its own address; then it boots: user data as cloud-init would do it. It ends
when the emulator ends it, or when there is no emulator any more.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from deploy.emulator.cloudinit import Boot
from deploy.emulator.gcp.metadata import GceMetadataServer
from deploy.emulator.machines import FATE_FILE, HARDWARE_FILE, USER_DATA_FILE
from deploy.node import procfs
from deploy.node.metadata import VARIABLES
from deploy.providers.local.machine import MetadataServer
from deploy.providers.local.records import Fate

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
