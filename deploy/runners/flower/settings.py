"""How the Flower runner works."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path

from deploy.objects.base import Objects
from deploy.runners.detached import Limits
from deploy.security.sandbox import Sandbox


@dataclass(frozen=True)
class FlowerSettings:
    """Settings of the runner.

    Attributes:
        state: folder of the runner's own; made with mode 0700.
        host: IP address of this machine as nodes reach it; SuperLinks listen there.
        node_python: Python of the nodes, with Flower and spotweave next to it.
        checkpoints: where each round's weights are kept besides this machine; None: nowhere.
        checkpoint_most_bytes: a larger checkpoint is kept on this machine only.
        reports_within_s: a look at all jobs waits so long for those that are slow to answer.
        node_silent_s: a node whose agent does not answer, or whose SuperNode is offline, for so long is given
            up. Flower itself takes up to a minute to find a SuperNode offline.
        superlink_silent_s: a SuperLink that runs and does not answer for so long is started again.
        start_within_s: a SuperNode that is not online so long after its SuperLink was reached is given up.
        hung_factor: a client that owes a result for more than this many times its own latest epoch (before
            there is one: the job's `epoch_s`), and `hung_floor_s`, is given up; after each time twice that.
        hung_floor_s: see there. Where no epoch is known, a client that is online may take for ever.
        keep_within_s: the last checkpoint of a job that is over may take so long to be kept; the clients of a
            run that waits so long for what is kept are given up.
        sandbox: around each SuperLink with its ServerApps; None: none, whoever submits a job has all rights
            of the scheduler.
        limits: of each SuperLink with its ServerApps.
    """

    state: Path
    host: str = "127.0.0.1"
    node_python: str = field(default=sys.executable)
    checkpoints: Objects | None = None
    checkpoint_most_bytes: int = 1 << 30
    reports_within_s: float = 3.0
    node_silent_s: float = 60.0
    superlink_silent_s: float = 60.0
    start_within_s: float = 300.0
    hung_factor: float = 5.0
    hung_floor_s: float = 120.0
    keep_within_s: float = 600.0
    sandbox: Sandbox | None = None
    limits: Limits = field(default_factory=Limits)
