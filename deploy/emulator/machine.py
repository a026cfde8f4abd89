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
from contextlib import suppress
from pathlib import Path

from deploy.emulator.aws.metadata import Ec2Metadata
from deploy.emulator.cloudinit import Boot
from deploy.emulator.gcp.metadata import GceMetadataServer
from deploy.emulator.machines import FATE_FILE, HARDWARE_FILE, USER_DATA_FILE
from deploy.node import procfs
from deploy.providers.local.records import Fate

_LOOK_S = 0.5
_SERVICES: dict[str, type[Ec2Metadata] | type[GceMetadataServer]] = {
    "aws": Ec2Metadata,
    "gcp": GceMetadataServer,
}
_log = logging.getLogger(__name__)


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
