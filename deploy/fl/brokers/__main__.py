"""`python -m spotweave.deploy.fl.brokers SETTINGS`: one broker, until it is told to stop.

SETTINGS: a JSON file.
"""

from __future__ import annotations

import sys
from pathlib import Path

from spotweave.deploy.fl.brokers.messages import BrokerSettings
from spotweave.deploy.fl.brokers.server import BrokerServer


def main() -> None:
    """Serve."""
    settings = BrokerSettings.model_validate_json(Path(sys.argv[1]).read_bytes())
    BrokerServer(settings).serve_forever(poll_interval=0.5)


if __name__ == "__main__":
    main()
