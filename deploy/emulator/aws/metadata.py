"""The metadata service of an emulated EC2 instance, with what EC2 tells besides an instance's end."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from deploy.node.metadata import VARIABLES
from deploy.providers.local.machine import MetadataServer
from deploy.providers.local.records import Fate


class Ec2Metadata(MetadataServer):
    """IMDSv2 on the instance's own address."""

    def __init__(self, hardware: dict[str, Any], fate: Callable[[], Fate]) -> None:
        self._texts: dict[str, str] = hardware["metadata"]
        self._action: str = hardware["action"]
        super().__init__(hardware["address"], hardware["instance_id"], fate)

    def environment(self) -> dict[str, str]:
        """Where programs of the instance find it."""
        return {VARIABLES["ec2"]: self.url}

    def answer(self, path: str) -> str | None:
        """The text at a path; None: there is nothing."""
        found = self._texts.get(path) or super().answer(path)
        if found is not None and path == "spot/instance-action":
            return json.dumps({**json.loads(found), "action": self._action})
        return found
