"""`python -m deploy.providers.aws check|offers|describe --config FILE`: looks, and changes nothing."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from deploy.providers.aws.candidates import candidates
from deploy.providers.aws.check import check
from deploy.providers.aws.config import AwsConfig, AwsConfigError, load_config
from deploy.providers.aws.provider import AwsProvider
from deploy.providers.base import ProviderError

_MARKS = {"right": "ok     ", "missing": "MISSING", "unknown": "unknown"}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; 1 if something is missing or failed, which is named in one line each."""
    parser = argparse.ArgumentParser(prog="python -m deploy.providers.aws", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    what = {
        "check": "what is right and what is missing",
        "offers": "what could be rented now",
        "describe": "what runs, and what ended lately",
    }
    for name, text in what.items():
        command = commands.add_parser(name, help=text)
        command.add_argument("--config", type=Path, required=True, help="the provider's YAML or JSON file")
        if name == "offers":
            command.add_argument("--gpu")
            command.add_argument("--max-price", type=float, metavar="USD_HOUR")
        if name == "describe":
            command.add_argument("--deployment", required=True)
    options = parser.parse_args(arguments)
    try:
        config = load_config(options.config)
        if options.command == "check":
            return _check(config)
        provider = AwsProvider(config)
        if options.command == "describe":
            for report in provider.describe(options.deployment):
                print(json.dumps(asdict(report)))
            return 0
        rows, trouble = candidates(
            provider, time.time(), gpu=options.gpu, max_price_usd_hour=options.max_price
        )
        for row in rows:
            print(json.dumps({**asdict(row.offer), "mean_usd_hour": row.mean_usd_hour, "score": row.score}))
        for line in trouble:
            print(f"note: {line}", file=sys.stderr)
    except (AwsConfigError, ProviderError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def _check(config: AwsConfig) -> int:
    missing = 0
    for finding in check(config):
        missing += finding.verdict == "missing"
        print(f"{_MARKS[finding.verdict]}  {finding.what}: {finding.text}", flush=True)
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
