"""`python -m deploy.providers.local --config FILE …`: rehearse on this machine, without a scheduler."""

from __future__ import annotations

import argparse
import json
import secrets
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import NoReturn

from deploy.model.instances import InstanceReport, LaunchRequest, Offer
from deploy.providers.base import ProviderError
from deploy.providers.local.config import LocalConfig
from deploy.providers.local.provider import LocalProvider
from deploy.yamlfile import ConfigError


class _Parser(argparse.ArgumentParser):
    """Complains in one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"error: {message} (see {self.prog} --help)\n")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="python -m deploy.providers.local", description=__doc__)
    parser.add_argument("--config", type=Path, required=True, help="the provider's YAML or JSON file")
    parser.add_argument("--deployment", default="rehearsal", help="tag of the instances (default: rehearsal)")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND", parser_class=_Parser)
    commands.add_parser("offers", help="what can be rented now")
    launch = commands.add_parser("launch", help="rent one instance")
    launch.add_argument("offer_id")
    launch.add_argument(
        "--client-token", help="the same one never gives a second instance (default: a new one)"
    )
    launch.add_argument("--job", default="none")
    launch.add_argument("--task", default="none")
    launch.add_argument("--max-price", type=float, help="spot: end it above this many USD per hour")
    commands.add_parser("describe", help="what runs, and what ended lately")
    interrupt = commands.add_parser("interrupt", help="take an instance away, as the market would")
    interrupt.add_argument("instance_id")
    when = interrupt.add_mutually_exclusive_group(required=True)
    when.add_argument("--notice", type=float, metavar="S", help="seconds of notice")
    when.add_argument("--now", action="store_true", help="without notice")
    terminate = commands.add_parser("terminate", help="end instances")
    terminate.add_argument("instance_id", nargs="+")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command: JSON lines on standard output; 1 after a mistake that was named in one line."""
    options = _parser().parse_args(arguments)
    try:
        provider = LocalProvider(LocalConfig.load(options.config))
        if options.command == "offers":
            _print(*provider.offers())
        elif options.command == "launch":
            token = options.client_token or secrets.token_hex(16)
            request = LaunchRequest(
                client_token=token,
                offer_id=options.offer_id,
                deployment=options.deployment,
                job_id=options.job,
                task=options.task,
                node_token=secrets.token_urlsafe(32),
                max_price_usd_hour=options.max_price,
            )
            _print(provider.launch(request))
        elif options.command == "describe":
            _print(*provider.describe(options.deployment))
        elif options.command == "interrupt":
            provider.interrupt(options.instance_id, None if options.now else options.notice)
        else:
            provider.terminate(options.instance_id)
    except (ConfigError, ProviderError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def _print(*items: Offer | InstanceReport) -> None:
    for item in items:
        print(json.dumps(asdict(item)))


if __name__ == "__main__":
    sys.exit(main())
