"""`python -m deploy.emulator CLOUD --config FILE --port 5555`: a cloud on this machine."""

from __future__ import annotations

import argparse
import signal
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

from deploy.emulator.emulator import CLOUDS, load
from deploy.emulator.server import Server
from deploy.yamlfile import ConfigError


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until SIGTERM or SIGINT; 2 for a configuration that cannot be used."""
    parser = argparse.ArgumentParser(prog="python -m deploy.emulator", description=__doc__)
    parser.add_argument("cloud", choices=CLOUDS, help="which cloud")
    parser.add_argument("--config", type=Path, required=True, help="YAML or JSON file")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: 127.0.0.1)")
    parser.add_argument(
        "--port", type=int, default=5555, help="port to listen on (default: 5555; 0: a free one)"
    )
    given = parser.parse_args(arguments)
    try:
        emulator = load(given.cloud, given.config)
    except ConfigError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    try:
        server = Server(emulator, given.host, given.port)
    except OSError as error:
        print(f"error: cannot listen on {given.host}:{given.port}: {error.strerror}", file=sys.stderr)
        emulator.close()
        return 2
    stopping = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())
    server.start()
    name, url = next(iter(emulator.environment(server.url).items()))
    print(f"{name}={url}", flush=True)
    stopping.wait()
    server.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
