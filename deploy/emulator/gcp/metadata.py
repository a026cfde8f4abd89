"""The metadata server of an emulated instance of Compute Engine, on its own loopback address.

https://cloud.google.com/compute/docs/metadata/predefined-metadata-keys
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from deploy.node.metadata import FLAVOR, ROOT, VARIABLES
from deploy.node.server import Listener, QuietHandler
from deploy.providers.local.records import Fate


class GceMetadataServer(Listener):
    """Answers for one instance, of whose fate it asks."""

    def __init__(self, hardware: dict[str, Any], fate: Callable[[], Fate]) -> None:
        self._texts: dict[str, str] = hardware["metadata"]
        self._fate = fate
        super().__init__(hardware["address"], 0, _Handler)

    def environment(self) -> dict[str, str]:
        """Environment variables with the address, for programs of the instance."""
        return {VARIABLES["gce"]: f"{self.server_address[0]!s}:{self.port}"}

    def answer(self, path: str) -> str | None:
        """The text at a path below /computeMetadata/v1/instance/; None: there is nothing."""
        if path == "preempted":
            notice_s = self._fate().notice_s
            return "TRUE" if notice_s is not None and time.time() >= notice_s else "FALSE"
        if path == "maintenance-event":
            advice_s = self._fate().rebalance_s
            told = advice_s is not None and time.time() >= advice_s
            return "TERMINATE_ON_HOST_MAINTENANCE" if told else "NONE"
        return self._texts.get(path)


class _Handler(QuietHandler):
    server: GceMetadataServer

    def do_GET(self) -> None:  # noqa: N802
        """Metadata, for those only that say what they ask: a browser led here does not."""
        if self.headers.get(FLAVOR) != "Google" or "X-Forwarded-For" in self.headers:
            self.send(403, b"Missing Metadata-Flavor:Google header.")
            return
        text = self.server.answer(self.path.removeprefix(ROOT)) if self.path.startswith(ROOT) else None
        self.send(404 if text is None else 200, (text or "").encode(), "application/text")

    def end_headers(self) -> None:
        """With the header by which clients know the server."""
        self.send_header(FLAVOR, "Google")
        super().end_headers()
