"""Counts the primes from FIRST on and below LAST, a thousand numbers at a time; goes on from where it was."""

import json
import math
import os
import sys
from pathlib import Path


def is_prime(number: int) -> bool:
    """By trial division."""
    return number > 1 and all(number % k for k in range(2, math.isqrt(number) + 1))


first, last = int(sys.argv[1]), int(sys.argv[2])
state = Path(os.environ["SPOTWEAVE_CHECKPOINT_DIR"]) / "state.json"
at, count = json.loads(state.read_text()) if state.exists() else (first, 0)
print(f"begins at {at} with {count} primes", flush=True)
while at < last:
    until = min(at + 1000, last)
    count += sum(map(is_prime, range(at, until)))
    at = until
    # Written elsewhere first: a checkpoint may be taken at any moment.
    part = Path("state.json")
    part.write_text(json.dumps((at, count)))
    part.replace(state)
print(f"{count} primes from {first} to {last - 1}")
