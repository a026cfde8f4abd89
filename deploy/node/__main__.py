"""`python -m deploy.node --config FILE`: the agent of this instance."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from deploy.node.agent import serve
from deploy.node.config import ConfigError, load_config


def main() -> int:
    """Run the agent until it is stopped; 2 for a configuration that cannot be used."""
    parser = argparse.ArgumentParser(prog="python -m deploy.node", description=__doc__)
    parser.add_argument("--config", type=Path, required=True, help="JSON file of mode 0600")
    try:
        serve(load_config(parser.parse_args().config))
    except ConfigError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
