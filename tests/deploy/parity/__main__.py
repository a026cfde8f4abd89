"""Print how far the live loop over the simulation core is the same as the environment.

python -m tests.deploy.parity [--jobs N] [--seed S ...] [--policy NAME ...]

The defaults take about three minutes of CPU.
"""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
import time
from pathlib import Path

import structlog

from tests.deploy.parity.comparing import Comparison, compare

POLICIES = ("maf", "expected_cost", "spotweave")


def main() -> int:
    """Compare and print. Returns 1 if anything differed."""
    parser = argparse.ArgumentParser(prog="python -m tests.deploy.parity", description=__doc__)
    parser.add_argument("--jobs", type=int, default=200, help="of an episode")
    parser.add_argument("--seed", type=int, action="append", help="of the episodes (default: 0 and 1)")
    parser.add_argument(
        "--policy", action="append", help=f"rules or released ones (default: {', '.join(POLICIES)})"
    )
    options = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    differed = False
    for policy in options.policy or POLICIES:
        for seed in options.seed or (0, 1):
            started = time.process_time()
            with tempfile.TemporaryDirectory() as folder:
                found = compare(policy, seed, options.jobs, Path(folder))
            report(found, time.process_time() - started)
            differed |= not found.same
    return int(differed)


def report(found: Comparison, took_s: float) -> None:
    """Print one comparison."""
    theirs = found.environment
    metrics = theirs.metrics
    print(f"{found.policy}, seed {found.seed}: {took_s:.0f} s of CPU, {found.passes} passes of the loop")
    print(f"  decisions the same: {found.same_steps} of {len(theirs.steps)} (live: {len(found.live.steps)})")
    print(f"  observations: {found.columns or 'every entry of every column the same'}")
    print(f"  caught by the safety net: {found.caught}, moved while they ran: {found.moved}")
    print(f"  metrics: {found.metrics or f'all {len(metrics)} the same'}")
    print(f"  ends of jobs in the store the same: {found.ends_in_store == theirs.ends_s}")
    print(f"  jobs, misses, interruptions and bills in the store: {found.in_store or 'all the same'}")
    print(
        f"  cost {metrics['cost_usd_eq']:.2f} USD eq., rented {found.books['rented_usd']:.6f} USD, "
        f"misses {metrics['miss_tc']:.0f} + {metrics['miss_batches']:.0f} batches, "
        f"interruptions {metrics['interruptions']:.0f}",
        flush=True,
    )


if __name__ == "__main__":
    sys.exit(main())
