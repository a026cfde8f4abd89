"""Whether the caller has what the scheduler's role grants, asked of the Resource Manager.

Asking needs no permission itself, but the API must be enabled:
https://cloud.google.com/resource-manager/reference/rest/v1/projects/testIamPermissions
"""

from __future__ import annotations

from pathlib import Path

import yaml

from deploy.providers.gcp.clients import Clients
from deploy.providers.gcp.config import GcpConfig
from deploy.providers.gcp.errors import gcp_errors
from deploy.providers.gcp.prices import parts

HOST = "cloudresourcemanager.googleapis.com"
ROLE = Path(__file__).with_name("role.yaml")


def needed(config: GcpConfig) -> list[str]:
    """Permissions of the role that this configuration makes use of."""
    granted: list[str] = yaml.safe_load(ROLE.read_text(encoding="utf-8"))["includedPermissions"]
    unused = {
        "compute.subnetworks.useExternalIp": config.node.address != "public",
        "compute.instances.setServiceAccount": config.service_account is None,
        "compute.acceleratorTypes.get": not any(parts(kind)[1] for kind in config.instance_types),
    }
    return [one for one in granted if not unused.get(one, False)]


def lacking(clients: Clients, config: GcpConfig) -> list[str]:
    """Those of them that the caller does not have on the project.

    Raises:
        ProviderError: if that cannot be asked.
    """
    asked = needed(config)
    with gcp_errors("gcp: permissions"):
        answer = clients.ask(
            "POST", HOST, f"/v1/projects/{config.project}:testIamPermissions", json={"permissions": asked}
        )
    granted = set(answer.get("permissions", ()))
    return [one for one in asked if one not in granted]
