"""A loopback instance metadata service (IMDSv2), one per instance, as EC2 documents it.

https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/instancedata-data-retrieval.html
"""

from __future__ import annotations

import json
import secrets
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime

from deploy.node.listener import Listener, QuietHandler
from deploy.providers.local.records import Fate

_TTL = "X-aws-ec2-metadata-token-ttl-seconds"
_TOKEN = "X-aws-ec2-metadata-token"
_MAX_TTL_S = 21600
_MAX_TOKENS = 1000


class MetadataServer(Listener):
    """Answers for one instance.

    Args:
        address: of the instance.
        instance_id: of the instance.
        fate: says what is in store for it now.
    """

    def __init__(self, address: str, instance_id: str, fate: Callable[[], Fate]) -> None:
        self._instance_id = instance_id
        self._fate = fate
        self._tokens: dict[str, float] = {}
        self._lock = threading.Lock()
        super().__init__(address, 0, _Handler)

    @property
    def url(self) -> str:
        """Root of the service."""
        host = str(self.server_address[0])
        return f"http://{host}:{self.port}"

    def start(self) -> None:
        """Serve in a thread."""
        threading.Thread(target=self.serve_forever, name="metadata", daemon=True).start()

    def new_token(self, ttl_s: int) -> str:
        """A session."""
        token = secrets.token_urlsafe(32)
        with self._lock:
            now = time.monotonic()
            self._tokens = {name: end for name, end in self._tokens.items() if end > now}
            while len(self._tokens) >= _MAX_TOKENS:
                del self._tokens[next(iter(self._tokens))]
            self._tokens[token] = now + ttl_s
        return token

    def knows(self, token: str) -> bool:
        """Whether a session lasts."""
        with self._lock:
            return self._tokens.get(token, 0.0) > time.monotonic()

    def answer(self, path: str) -> str | None:
        """The text at a path below /latest/meta-data/; None: there is nothing."""
        now, fate = time.time(), self._fate()
        if path == "instance-id":
            return self._instance_id
        if path == "events/recommendations/rebalance" and fate.rebalance_s is not None:
            if now >= fate.rebalance_s:
                return json.dumps({"noticeTime": _utc(fate.rebalance_s)})
        elif (
            path == "spot/instance-action"
            and fate.notice_s is not None
            and fate.kill_s is not None
            and now >= fate.notice_s
        ):
            return json.dumps({"action": "terminate", "time": _utc(fate.kill_s)})
        return None


class _Handler(QuietHandler):
    server: MetadataServer

    def do_PUT(self) -> None:  # noqa: N802
        """A new session token."""
        ttl = self.headers.get(_TTL, "")
        if self.path != "/latest/api/token":
            self.send(404, b"")
        elif not ttl.isdecimal() or not 1 <= int(ttl[:6]) <= _MAX_TTL_S or "X-Forwarded-For" in self.headers:
            self.send(400, b"")
        else:
            self.send(200, self.server.new_token(int(ttl)).encode(), "text/plain")

    def do_GET(self) -> None:  # noqa: N802
        """Metadata, with a session token only."""
        if not self.server.knows(self.headers.get(_TOKEN, "")):
            self.send(401, b"")
            return
        prefix = "/latest/meta-data/"
        text = self.server.answer(self.path.removeprefix(prefix)) if self.path.startswith(prefix) else None
        if text is None:
            self.send(404, b"")
        else:
            self.send(200, text.encode(), "text/plain")


def _utc(time_s: float) -> str:
    return datetime.fromtimestamp(time_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
