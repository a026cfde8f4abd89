"""Renting one instance of one offer: instances.insert, idempotent by its request id and its name.

What there is no capacity for is an error of the insert's operation, so that is waited for.
https://cloud.google.com/compute/docs/reference/rest/v1/instances/insert
"""

from __future__ import annotations

import threading
import time
from typing import Any

from google.api_core import exceptions as api
from google.cloud import compute_v1

from spotweave.deploy.model.instances import LaunchRequest
from spotweave.deploy.providers.base import ProviderError
from spotweave.deploy.providers.config import Place
from spotweave.deploy.providers.gcp.clients import (
    RETRY,
    TIMEOUT_S,
    Clients,
    gcp_errors,
    of_operation,
    reason_of,
)
from spotweave.deploy.providers.gcp.config import (
    DEPLOYMENT,
    GcpConfig,
    instance_name,
    label,
    labels_of,
    request_id,
)
from spotweave.deploy.providers.gcp.listing import done
from spotweave.deploy.providers.gcp.prices import parts
from spotweave.deploy.providers.userdata import user_data

USER_DATA_BYTES = 200_000  # all metadata of an instance together may have 256 KiB
WITHIN_S = 12.0  # an operation that is not done by then goes on; `describe` hears how it ends


class Launcher:
    """Safe to use from several threads."""

    def __init__(self, clients: Clients, config: GcpConfig) -> None:
        self._clients, self._config = clients, config
        self._ca_pem = config.node.ca_pem(config.folder)
        self._refused: dict[tuple[str, str], tuple[str, ...]] = {}
        self._lock = threading.Lock()

    def run(self, request: LaunchRequest, place: Place) -> compute_v1.Instance | None:
        """Rent one instance, or learn of this token's; None where it has ended. See `Provider.launch`."""
        doing = f"gcp {place.zone}: launch of {place.instance_type} ({place.market})"
        key = (request.deployment, request.client_token)
        name = instance_name(request)
        with self._lock:
            refused = self._refused.get(key, ())
        asked = compute_v1.InsertInstanceRequest(
            project=self._config.project,
            zone=place.zone,
            instance_resource=self.body(request, place),
            request_id=request_id(request, refused),
        )
        try:
            with gcp_errors(doing):
                operation = self._clients.instances.insert_unary(asked, retry=RETRY, timeout=TIMEOUT_S)
        except ProviderError as error:
            if reason_of(error.__cause__) == "alreadyExists":
                return self.get(place.zone, name)
            raise
        failure = self._waited(operation, place.zone, doing)
        if failure is not None:
            with self._lock:
                self._refused[key] = (*refused, operation.name)
            raise failure
        return self.get(place.zone, name)

    def get(self, zone: str, name: str) -> compute_v1.Instance | None:
        """An instance; None if there is none. Raises ProviderError."""
        try:
            with gcp_errors(f"gcp {zone}: {name}"):
                return self._clients.instances.get(
                    project=self._config.project, zone=zone, instance=name, retry=RETRY, timeout=TIMEOUT_S
                )
        except ProviderError as error:
            if isinstance(error.__cause__, api.NotFound):
                return None
            raise

    def body(self, request: LaunchRequest, place: Place) -> compute_v1.Instance:
        """Body of the insert request."""
        config = self._config
        zone = f"zones/{place.zone}"
        machine, gpu, gpus = parts(place.instance_type)
        disk = {"disk_size_gb": config.disk_gib, "disk_type": f"{zone}/diskTypes/{config.disk_type}"}
        network: dict[str, Any] = {
            "subnetwork": f"regions/{place.region}/subnetworks/{config.regions[place.region].subnetwork}"
        }
        if config.node.address == "public":
            network["access_configs"] = [{"name": "External NAT", "type_": "ONE_TO_ONE_NAT"}]
        found: dict[str, Any] = {
            "name": instance_name(request),
            "machine_type": f"{zone}/machineTypes/{machine}",
            "labels": labels_of(request, config),
            "disks": [
                {
                    "boot": True,
                    "auto_delete": True,
                    "initialize_params": {
                        **disk,
                        "source_image": config.image,
                        "labels": {DEPLOYMENT: label(request.deployment)},
                    },
                }
            ],
            "network_interfaces": [network],
            "scheduling": self._scheduling(place),
            "metadata": {
                "items": [
                    {
                        "key": "user-data",
                        "value": user_data(request, config.node, self._ca_pem, "gce", USER_DATA_BYTES),
                    },
                    # Nobody logs in by keys of the project.
                    {"key": "block-project-ssh-keys", "value": "TRUE"},
                ]
            },
            "tags": {"items": list(config.network_tags)},
            "shielded_instance_config": {"enable_vtpm": True, "enable_integrity_monitoring": True},
        }
        if gpu is not None:
            kind = f"{zone}/acceleratorTypes/{gpu}"
            found["guest_accelerators"] = [{"accelerator_count": gpus, "accelerator_type": kind}]
        if config.service_account is not None:
            scopes = ["https://www.googleapis.com/auth/cloud-platform"]
            found["service_accounts"] = [{"email": config.service_account, "scopes": scopes}]
        return compute_v1.Instance(**found)

    def _scheduling(self, place: Place) -> dict[str, Any]:
        """GPUs and spot VMs cannot move to another host; nothing is started again behind our back."""
        if place.market == "on_demand":
            machine, gpu, _ = parts(place.instance_type)
            fixed = gpu is not None or machine.startswith(("a2-", "a3-", "g2-", "g4-"))
            return {
                "automatic_restart": False,
                "provisioning_model": "STANDARD",
                "on_host_maintenance": "TERMINATE" if fixed else "MIGRATE",
            }
        return {
            "automatic_restart": False,
            "on_host_maintenance": "TERMINATE",
            "provisioning_model": "SPOT",
            "instance_termination_action": self._config.when_preempted.upper(),
        }

    def _waited(self, operation: compute_v1.Operation, zone: str, doing: str) -> ProviderError | None:
        """How an operation ended, if it did in time; None: well, or it goes on. Raises ProviderError."""
        end_s = time.monotonic() + WITHIN_S
        running = operation.status != compute_v1.Operation.Status.DONE
        while running and (left_s := end_s - time.monotonic()) > 0:
            with gcp_errors(doing):
                operation = self._clients.get("ZoneOperations").wait(
                    project=self._config.project,
                    zone=zone,
                    operation=operation.name,
                    retry=RETRY,
                    timeout=left_s,
                )
            running = operation.status != compute_v1.Operation.Status.DONE
        found = done(operation)
        return None if found.error is None else of_operation(*found.error, doing)
