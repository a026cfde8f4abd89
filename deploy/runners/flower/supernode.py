"""`python -m spotweave.deploy.runners.flower.supernode HOST ARGUMENTS`: flower-supernode on HOST.

Its port is a free one. It becomes the SuperNode: the same process, so that signals reach it.
"""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

from spotweave.deploy.runners.flower import superexec


def main() -> None:
    """Never returns."""
    host = sys.argv[1]
    superexec.put_first(Path(os.environ["FLWR_HOME"]) / "bin")
    with socket.create_server((host, 0)) as probe:
        port = probe.getsockname()[1]
    program = str(Path(sys.executable).with_name("flower-supernode"))
    os.execv(program, [program, "--host", host, "--port", str(port), *sys.argv[2:]])


if __name__ == "__main__":
    main()
