"""`python -m spotweave.deploy.node --config FILE` or `--join FILE`: the agent of this instance."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from spotweave.deploy.node.agent import serve
from spotweave.deploy.node.config import AgentConfig
from spotweave.deploy.node.join import JoinConfig, JoinError, join
from spotweave.deploy.yamlfile import ConfigError


def main() -> int:
    """Run the agent until it is stopped; 2 for a configuration that cannot be used, 1 if it may not join."""
    parser = argparse.ArgumentParser(prog="python -m spotweave.deploy.node", description=__doc__)
    given = parser.add_mutually_exclusive_group(required=True)
    given.add_argument("--config", type=Path, help="JSON file of mode 0600")
    given.add_argument("--join", type=Path, help="JSON file of mode 0600: ask the scheduler for the rest")
    options = parser.parse_args()
    try:
        serve(AgentConfig.load(options.config) if options.config else join(JoinConfig.load(options.join)))
    except ConfigError as error:
        print(error, file=sys.stderr)
        return 2
    except JoinError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
