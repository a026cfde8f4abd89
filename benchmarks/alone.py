"""A benchmark in a process of its own, whose memory and time are not those of the others."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent


def run_alone(module: str, *arguments: object) -> Any:
    """What `python -m MODULE ARGUMENTS` prints as JSON, on one thread of BLAS and torch.

    Raises:
        ValueError: if it fails, with the last line of its errors.
    """
    done = subprocess.run(
        [sys.executable, "-m", module, *map(str, arguments)],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise ValueError(f"{module} could not be measured: {''.join(done.stderr.splitlines()[-1:])}")
    return json.loads(done.stdout)
