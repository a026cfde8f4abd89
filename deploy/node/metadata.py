"""The metadata service of this instance, whichever cloud it is of."""

from __future__ import annotations

import os

from deploy.node.config import MetadataKind
from deploy.node.gce import GceMetadata
from deploy.node.imds import Metadata, MetadataService

VARIABLES: dict[MetadataKind, str] = {
    "ec2": "AWS_EC2_METADATA_SERVICE_ENDPOINT",
    "gce": "GCE_METADATA_HOST",
}
"""As the SDKs know them: where an emulator's instances have their metadata service."""
_ADDRESS = "169.254.169.254"


def url_of(kind: MetadataKind) -> str:
    """Where it is."""
    given = os.environ.get(VARIABLES[kind], _ADDRESS).rstrip("/")
    return given if given.startswith("http://") else f"http://{given}"


def service(kind: MetadataKind, url: str) -> MetadataService:
    """It, at this address."""
    return GceMetadata(url) if kind == "gce" else Metadata(url)
