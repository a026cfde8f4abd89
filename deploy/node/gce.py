"""Compute Engine's metadata server, as a node asks it whether its time is up.

`instance/preempted` turns TRUE when the instance is told to shut down, 30 s before it is taken away
(https://cloud.google.com/compute/docs/instances/create-use-preemptible, "Preemption process"; and
https://cloud.google.com/compute/docs/metadata/predefined-metadata-keys).
"""

from __future__ import annotations

import time
import urllib.error
import urllib.request

from deploy.node.imds import MetadataError

NOTICE_S = 30.0
"""From a preemption notice to the end; the server does not date it."""
FLAVOR = "Metadata-Flavor"
ROOT = "/computeMetadata/v1/instance/"
_TIMEOUT_S = 2.0
_MAX_ANSWER = 65536


class GceMetadata:
    """One instance's metadata server; implements `deploy.node.imds.MetadataService`. Not for several threads.

    Args:
        url: of the server, e.g. "http://169.254.169.254".
    """

    def __init__(self, url: str) -> None:
        self._url = url.rstrip("/")
        self._ends_s: float | None = None
        # Never through a proxy: the server answers on the instance only.
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def instance_id(self) -> str:
        """See MetadataService: the name, by which instances are rented and ended."""
        return self._text("name")

    def address(self) -> str:
        """See MetadataService."""
        return self._text("network-interfaces/0/ip")

    def interruption_s(self) -> float | None:
        """See MetadataService: 30 s after the preemption was first seen."""
        if self._ends_s is None and self._text("preempted") == "TRUE":
            self._ends_s = time.time() + NOTICE_S
        return self._ends_s

    def rebalance(self) -> bool:
        """See MetadataService: host maintenance will end it; GPUs get an hour's notice of that."""
        return self._text("maintenance-event").startswith("TERMINATE")

    def _text(self, path: str) -> str:
        request = urllib.request.Request(f"{self._url}{ROOT}{path}", headers={FLAVOR: "Google"})
        try:
            with self._opener.open(request, timeout=_TIMEOUT_S) as answer:
                if answer.headers.get(FLAVOR) != "Google":
                    raise MetadataError(f"{self._url} is not Compute Engine's metadata server")
                content: bytes = answer.read(_MAX_ANSWER)
                return content.decode("utf-8", "replace").strip()
        except urllib.error.HTTPError as error:
            raise MetadataError(f"{path}: HTTP {error.code}") from error
        except (OSError, ValueError) as error:
            raise MetadataError(f"{self._url} does not answer: {error}") from error
