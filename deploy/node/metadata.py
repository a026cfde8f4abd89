"""The metadata service of this instance, whichever cloud it is of."""

from __future__ import annotations

import json
import logging
import os
import threading
import time
import urllib.error
import urllib.request
from abc import ABC, abstractmethod
from collections.abc import Callable
from datetime import UTC, datetime
from email.message import Message

from spotweave.deploy.node.config import MetadataKind

_TOKEN_TTL_S = 21600
_TIMEOUT_S = 2.0
_MAX_ANSWER = 65536
_log = logging.getLogger(__name__)


class MetadataError(Exception):
    """The service did not answer as it should."""


class MetadataService(ABC):
    """One instance's metadata service, of any cloud, for one thread. All methods raise MetadataError."""

    _id_path: str
    _address_path: str

    def __init__(self, url: str) -> None:
        self._url = url.rstrip("/")
        # Never through a proxy: the service answers on the instance only.
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def instance_id(self) -> str:
        """As the provider calls the instance, by which it is rented and ended."""
        return self.text(self._id_path)

    def address(self) -> str:
        """Private, IPv4."""
        return self.text(self._address_path)

    @abstractmethod
    def text(self, path: str) -> str:
        """What is at a path below that of the instance."""

    @abstractmethod
    def interruption_s(self) -> float | None:
        """Epoch seconds at which the instance will be ended; None while there is no notice."""

    @abstractmethod
    def rebalance(self) -> bool:
        """Whether the provider recommends to leave the instance."""

    def _open(self, request: urllib.request.Request) -> tuple[Message, bytes]:
        """Headers and content. Raises HTTPError too."""
        try:
            with self._opener.open(request, timeout=_TIMEOUT_S) as answer:
                return answer.headers, answer.read(_MAX_ANSWER)
        except urllib.error.HTTPError:
            raise
        except (OSError, ValueError) as error:
            raise MetadataError(f"{self._url} does not answer: {error}") from error


class Metadata(MetadataService):
    """EC2's instance metadata service (IMDSv2)."""

    _id_path, _address_path = "instance-id", "local-ipv4"
    _token: str | None = None

    def interruption_s(self) -> float | None:
        """See MetadataService."""
        answer = self._get("spot/instance-action")
        if answer is None:
            return None
        try:
            end = datetime.fromisoformat(json.loads(answer)["time"])
            return (end if end.tzinfo else end.replace(tzinfo=UTC)).timestamp()
        except (ValueError, TypeError, KeyError):
            # A notice is there, only its time cannot be read: the safe reading is "any moment".
            _log.exception("an interruption notice that cannot be read")
            return time.time()

    def rebalance(self) -> bool:
        """See MetadataService."""
        return self._get("events/recommendations/rebalance") is not None

    def text(self, path: str) -> str:
        """See MetadataService: below `meta-data/`."""
        answer = self._get(path)
        if answer is None:
            raise MetadataError(f"{path}: there is none")
        return answer.decode("utf-8", "replace").strip()

    def _get(self, path: str) -> bytes | None:
        for fresh in (False, True):
            if self._token is None or fresh:
                self._token = self._new_token()
            request = urllib.request.Request(
                f"{self._url}/latest/meta-data/{path}", headers={"X-aws-ec2-metadata-token": self._token}
            )
            try:
                return self._open(request)[1]
            except urllib.error.HTTPError as error:
                if error.code == 404:
                    return None
                if error.code != 401 or fresh:
                    raise MetadataError(f"{path}: HTTP {error.code}") from error
        raise AssertionError("unreachable")

    def _new_token(self) -> str:
        request = urllib.request.Request(
            f"{self._url}/latest/api/token",
            method="PUT",
            headers={"X-aws-ec2-metadata-token-ttl-seconds": str(_TOKEN_TTL_S)},
        )
        try:
            return self._open(request)[1].decode("ascii")
        except (urllib.error.HTTPError, UnicodeDecodeError) as error:
            raise MetadataError(f"no token: {error}") from error


class Watcher:
    """Looks at the metadata service again and again, and tells of a notice and of a rebalance hint."""

    def __init__(
        self,
        metadata: MetadataService,
        poll_s: float,
        on_notice: Callable[[float], None],
        on_rebalance: Callable[[], None],
    ) -> None:
        self._metadata, self._poll_s = metadata, poll_s
        self._on_notice, self._on_rebalance = on_notice, on_rebalance
        self._closed = threading.Event()
        threading.Thread(target=self._watch, name="imds", daemon=True).start()

    def close(self) -> None:
        """Look no more."""
        self._closed.set()

    def _watch(self) -> None:
        silent = False
        noticed_s: float | None = None
        hinted = False
        while True:
            try:
                notice_s = self._metadata.interruption_s()
                if notice_s is not None and notice_s != noticed_s:
                    noticed_s = notice_s
                    self._on_notice(notice_s)
                if not hinted and self._metadata.rebalance():
                    hinted = True
                    self._on_rebalance()
                silent = False
            except MetadataError as error:
                if not silent:
                    _log.warning("instance metadata: %s", error)
                silent = True
            if self._closed.wait(self._poll_s):
                return


# Compute Engine's metadata server, as a node asks it whether its time is up.
#
# `instance/preempted` turns TRUE when the instance is told to shut down, 30 s before it is taken away
# (https://cloud.google.com/compute/docs/instances/create-use-preemptible, "Preemption process"; and
# https://cloud.google.com/compute/docs/metadata/predefined-metadata-keys).

NOTICE_S = 30.0  # seconds from a preemption notice to the end; the server does not date it
FLAVOR = "Metadata-Flavor"
ROOT = "/computeMetadata/v1/instance/"


class GceMetadata(MetadataService):
    """Compute Engine's metadata server."""

    _id_path, _address_path = "name", "network-interfaces/0/ip"
    _ends_s: float | None = None

    def interruption_s(self) -> float | None:
        """See MetadataService: 30 s after the preemption was first seen."""
        if self._ends_s is None and self.text("preempted") == "TRUE":
            self._ends_s = time.time() + NOTICE_S
        return self._ends_s

    def rebalance(self) -> bool:
        """See MetadataService: host maintenance will end it; GPUs get an hour's notice of that."""
        return self.text("maintenance-event").startswith("TERMINATE")

    def text(self, path: str) -> str:
        """See MetadataService."""
        request = urllib.request.Request(f"{self._url}{ROOT}{path}", headers={FLAVOR: "Google"})
        try:
            headers, content = self._open(request)
        except urllib.error.HTTPError as error:
            raise MetadataError(f"{path}: HTTP {error.code}") from error
        if headers.get(FLAVOR) != "Google":
            raise MetadataError(f"{self._url} is not Compute Engine's metadata server")
        return content.decode("utf-8", "replace").strip()


VARIABLES: dict[MetadataKind, str] = {"ec2": "AWS_EC2_METADATA_SERVICE_ENDPOINT", "gce": "GCE_METADATA_HOST"}
"""As the SDKs know them: where an emulator's instances have their metadata service."""
_ADDRESS = "169.254.169.254"


def url_of(kind: MetadataKind) -> str:
    """URL of the metadata service."""
    given = os.environ.get(VARIABLES[kind], _ADDRESS).rstrip("/")
    return given if given.startswith("http://") else f"http://{given}"


def service(kind: MetadataKind, url: str) -> MetadataService:
    """It, at this address."""
    return GceMetadata(url) if kind == "gce" else Metadata(url)
