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

from deploy.emulator.cloudinit import Boot
from deploy.emulator.machines import FATE_FILE, HARDWARE_FILE, USER_DATA_FILE
from deploy.node import procfs
from deploy.node.join import IMDS_VARIABLE
from deploy.providers.local.metadata import MetadataServer
from deploy.providers.local.records import Fate

_LOOK_S = 0.5
_log = logging.getLogger(__name__)


class _Metadata(MetadataServer):
    """With what EC2 tells besides an instance's end."""

    def __init__(
        self, address: str, instance_id: str, fate: Callable[[], Fate], texts: dict[str, str], action: str
    ) -> None:
        self._texts, self._action = texts, action
        super().__init__(address, instance_id, fate)

    def answer(self, path: str) -> str | None:
        """The text at a path; None: there is nothing."""
        found = self._texts.get(path) or super().answer(path)
        if found is not None and path == "spot/instance-action":
            return json.dumps({**json.loads(found), "action": self._action})
        return found


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

    metadata = _Metadata(
        hardware["address"], hardware["instance_id"], fate, hardware["metadata"], hardware["action"]
    )
    metadata.start()
    environment = {**os.environ, IMDS_VARIABLE: metadata.url}
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
