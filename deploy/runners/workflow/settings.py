"""How the runner of workflows works."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from deploy.runners.spark.settings import SparkSettings


@dataclass(frozen=True)
class WorkflowSettings:
    """Settings of the runner.

    Attributes:
        state: folder of the runner's own; made with mode 0700. The same folder finds the same clusters again.
        spark: of every cluster; each has a state folder of its own in `state` instead of that.
        data: by region: the folder in which its cluster keeps data, as this machine and its nodes see it.
    """

    state: Path
    spark: SparkSettings
    data: Mapping[str, Path] = field(default_factory=dict)
