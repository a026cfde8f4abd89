"""The Resource Manager's API: which permissions the caller has.

https://cloud.google.com/resource-manager/reference/rest/v1/projects/testIamPermissions
"""

from __future__ import annotations

import re

from deploy.emulator.gcp.compute import body_of
from deploy.emulator.gcp.config import GcpEmulatorConfig
from deploy.emulator.gcp.errors import GcpError
from deploy.emulator.gcp.messages import Answer, Request, json_answer

_PATH = re.compile(r"/v1/projects/([^/]+):testIamPermissions")


class Projects:
    """Answers for one project."""

    api = "cloudresourcemanager.googleapis.com"

    def __init__(self, config: GcpEmulatorConfig) -> None:
        self._config = config

    def permission(self, request: Request) -> str:
        """What is counted; "" for what is not the Resource Manager's. Asking needs no permission."""
        asked = request.method == "POST" and _PATH.fullmatch(request.path)
        return "resourcemanager.projects.testIamPermissions" if asked else ""

    def answer(self, request: Request) -> Answer:
        """Raises GcpError."""
        found = _PATH.fullmatch(request.path)
        if found is None or found[1] != self._config.project:
            raise GcpError("forbidden", "The caller does not have permission", 403)
        asked = body_of(request.content).get("permissions", [])
        granted = [one for one in asked if one not in self._config.denied]
        return json_answer({"permissions": granted} if granted else {})
