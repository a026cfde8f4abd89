"""How the runner of bags works."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path

from deploy.objects.base import Objects
from deploy.security.sandbox import Sandbox


@dataclass(frozen=True)
class BagSettings:
    """Settings of the runner.

    Attributes:
        state: folder of the runner's own; made with mode 0700. The same folder finds the same tasks again.
        checkpoints: where tasks' checkpoints are kept; None: in `state`.
        node_python: Python of the nodes, with spotweave next to it.
        checkpoint_most_bytes: a larger checkpoint is not kept: it passes through the scheduler's memory.
        reports_within_s: a look at all tasks waits so long for nodes that are slow to answer.
        sandbox: whose ids jobs have on instances of this machine; None: none.
    """

    state: Path
    checkpoints: Objects | None = None
    node_python: str = field(default=sys.executable)
    checkpoint_most_bytes: int = 256 << 20
    reports_within_s: float = 3.0
    sandbox: Sandbox | None = None
