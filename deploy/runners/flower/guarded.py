"""`python -m spotweave.deploy.runners.flower.guarded ARGUMENTS`: flower-superlink with doors that can shut.

A SuperLink serves nodes, its own ServerApp and whoever controls it on one port. Nodes prove who they are, and
ServerApps that they have a run's token; but whoever reaches the port may start a run, that is, execute code
here and on all clients, and whoever asks first is given a run with its token. So here both want a token, and
everything but the nodes' API is for this machine alone. A ServerApp on an instance of its own reaches its API
from there, and is fetched with a token that is good for nothing else.
"""

from __future__ import annotations

import hmac
import ipaddress
import logging
import os
from pathlib import Path

from starlette.middleware import Middleware
from starlette.types import ASGIApp, Receive, Scope, Send

TOKEN_FILE_VARIABLE = "SPOTWEAVE_CONTROL_TOKEN_FILE"
RUNTIME_TOKEN_FILE_VARIABLE = "SPOTWEAVE_RUNTIME_TOKEN_FILE"
"""Set where ServerApps run on another machine."""
TOKEN_HEADER = "x-spotweave-control"
_ACQUIRE = "/v1/runtime/acquire-task"


class Guard:
    """Refuses with 403 what is not for the one who asks; `runtime`: see RUNTIME_TOKEN_FILE_VARIABLE."""

    def __init__(self, app: ASGIApp, token: str, runtime: str = "") -> None:
        self._app = app
        self._token, self._runtime = token.encode(), runtime.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on or refuse one request."""
        if scope["type"] != "lifespan" and not self.allows(scope):
            await send({"type": "http.response.start", "status": 403, "headers": []})
            await send({"type": "http.response.body", "body": b""})
            return
        await self._app(scope, receive, send)

    def allows(self, scope: Scope) -> bool:
        """Whether the request is allowed."""
        if scope["type"] != "http":
            return False
        path: str = scope["path"]
        if path.startswith("/v1/fleet/"):
            return True
        given = dict(scope["headers"]).get(TOKEN_HEADER.encode(), b"")
        if self._runtime and path.startswith("/v1/runtime/"):
            # Everything but this wants a run's token, which Flower checks.
            return path.rstrip("/") != _ACQUIRE or hmac.compare_digest(given, self._runtime)
        client, server = scope.get("client"), scope.get("server")
        if not client or not server:
            return False
        if client[0] != server[0] and not ipaddress.ip_address(client[0]).is_loopback:
            return False
        if path.startswith("/v1/control/") or path.rstrip("/") == _ACQUIRE:
            return hmac.compare_digest(given, self._token)
        return path.startswith("/v1/runtime/") or path == "/health"


def _worth_a_line(record: logging.LogRecord) -> bool:
    """Whether a log line is more than the runner's looking every second."""
    text = record.getMessage()
    return "/v1/control/list-" not in text and "ControlServicer.List" not in text


def main() -> None:
    """Run the SuperLink until it is told to stop."""
    # Here: the scheduler reads names of this module, and this would double the time that it needs to start.
    from flwr.superlink import extensions
    from flwr.superlink.cli.flower_superlink import flower_superlink

    from spotweave.deploy.runners.flower import superexec

    superexec.put_first(Path(os.environ["HOME"]) / "bin")
    for name in ("uvicorn.access", "flwr"):
        logging.getLogger(name).addFilter(_worth_a_line)
    token = Path(os.environ[TOKEN_FILE_VARIABLE]).read_text()
    file = os.environ.get(RUNTIME_TOKEN_FILE_VARIABLE)
    runtime = Path(file).read_text() if file else ""
    # Flower's own hook, for an extension package that is looked for under a fixed name.
    extensions.get_middleware = lambda: (Middleware(Guard, token=token, runtime=runtime),)
    flower_superlink()


if __name__ == "__main__":
    main()
