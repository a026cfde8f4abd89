"""An emulated Google Cloud project: its world, served over HTTP by `app`."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from deploy.emulator.emulator import Emulator, clock_of, machines_of
from deploy.emulator.gcp.config import GcpEmulatorConfig
from deploy.emulator.gcp.world import GceWorld
from deploy.emulator.market import Market
from deploy.model.clock import Clock
from deploy.node.metadata import FLAVOR, ROOT, VARIABLES
from deploy.node.server import Listener, QuietHandler
from deploy.providers.local.records import Fate

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIApplication


VARIABLE = "COMPUTE_EMULATOR_HOST"
"""Where the provider finds an emulator, after the pattern of Google's own STORAGE_EMULATOR_HOST."""


class GcpEmulator(Emulator):
    """Any number of them fit into a process.

    Args:
        config: what is emulated.
        clock: None: as configured.

    Raises:
        ConfigError: if a recording cannot be used.
    """

    def __init__(self, config: GcpEmulatorConfig, clock: Clock | None = None) -> None:
        self.config: GcpEmulatorConfig = config
        clock = clock_of(config) if clock is None else clock
        self.world: GceWorld = GceWorld(config, clock, Market(config, clock.now()), machines_of(config))
        self.calls = Counter()

    def app(self) -> WSGIApplication:
        """See Emulator."""
        from deploy.emulator.gcp.app import App

        return App(self)

    def environment(self, url: str) -> dict[str, str | None]:
        """See Emulator."""
        return {VARIABLE: url}

    def disk_usd_gib_month(self, region: str) -> float:
        """See Emulator."""
        return self.config.disk_usd_gib_month[region]


# The metadata server of an emulated instance of Compute Engine, on its own loopback address.
#
# https://cloud.google.com/compute/docs/metadata/predefined-metadata-keys


class GceMetadataServer(Listener):
    """Answers for one instance.

    Args:
        hardware: of the instance.
        fate: says what is in store for it now.
    """

    def __init__(self, hardware: dict[str, Any], fate: Callable[[], Fate]) -> None:
        self._texts: dict[str, str] = hardware["metadata"]
        self._fate = fate
        super().__init__(hardware["address"], 0, _Handler)

    def environment(self) -> dict[str, str]:
        """Where programs of the instance find it."""
        return {VARIABLES["gce"]: f"{self.server_address[0]!s}:{self.port}"}

    def start(self) -> None:
        """Serve in a thread."""
        threading.Thread(target=self.serve_forever, name="metadata", daemon=True).start()

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
