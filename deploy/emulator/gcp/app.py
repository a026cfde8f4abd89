"""The WSGI application of an emulated Google Cloud: one address for all of its APIs."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

from deploy.emulator.control import PREFIX, Control
from deploy.emulator.errors import CloudError
from deploy.emulator.gcp.compute import ROOT, Compute, body_of
from deploy.emulator.gcp.emulator import GcpEmulator
from deploy.emulator.gcp.errors import GcpError

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIEnvironment

_LONGEST_WAIT_S = 10.0
"""The real service waits up to two minutes; what is not done then is asked for again."""


class App:
    """Answers Compute Engine, and the control interface under /_emulator/.

    Raises (when called):
        LostAnswerError: if the answer shall never arrive: the server closes the connection.
    """

    def __init__(self, emulator: GcpEmulator) -> None:
        self._emulator = emulator
        self._control = Control(emulator)
        self._compute = Compute(emulator.config, emulator.world)

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """Answer one request."""
        path, method = environ.get("PATH_INFO", ""), environ.get("REQUEST_METHOD", "GET")
        if path.startswith(PREFIX):
            status, content = self._control.answer(environ)
            return _send(start_response, status, content)
        query = dict(parse_qsl(environ.get("QUERY_STRING", "")))
        content = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        try:
            self._known(environ.get("HTTP_AUTHORIZATION", ""))
            if not path.startswith(ROOT):
                raise GcpError("notFound", f"{path} is not emulated", 404)
            found = self._answer(method, path, query, body_of(content))
        except CloudError as error:
            body = error.json() if isinstance(error, GcpError) else {}
            return _send(start_response, error.status, json.dumps(body).encode())
        return _send(start_response, 200, json.dumps(found).encode())

    def _known(self, shown: str) -> None:
        config = self._emulator.config
        if config.token is not None and shown != f"Bearer {config.token}":
            raise GcpError("authError", "Request had invalid authentication credentials.", 401)
        if "compute.googleapis.com" in config.disabled:
            raise GcpError(
                "accessNotConfigured",
                f"Compute Engine API has not been used in project {config.project} before or it is disabled. "
                "Enable it by visiting https://console.developers.google.com/apis/api/compute.googleapis.com",
                403,
            )

    def _answer(self, method: str, path: str, query: dict[str, str], body: dict[str, Any]) -> dict[str, Any]:
        emulator, world = self._emulator, self._emulator.world
        permission = self._compute.permission(method, path)
        service, _, action = permission.partition(".")
        with world.lock:
            world.settle()
            emulator.calls[f"{service}:{action}"] += 1
            now_s = world.clock.now()
            world.faults.throttle(service, now_s)
            spell = world.faults.before(service, action, self._compute.region(path), now_s)
            left_s = self._compute.left_s(path)
            if left_s and emulator.config.clock == "virtual":
                world.clock.sleep(left_s)
        if left_s and emulator.config.clock == "real":
            time.sleep(min(left_s, _LONGEST_WAIT_S))
        with world.lock:
            world.settle()

            def dark(region: str) -> bool:
                return any(
                    one.regions and one.concerns(service, action, region, world.clock.now())
                    for one in world.faults.config.spells
                )

            found = self._compute.answer(method, path, query, body, dark)
            if spell == "empty":
                found = {
                    name: type(value)() for name, value in found.items() if isinstance(value, dict | list)
                }
            world.faults.after(service, action, spell)
            return found


def _send(start_response: StartResponse, status: int, content: bytes) -> Iterable[bytes]:
    headers = [("Content-Type", "application/json; charset=UTF-8"), ("Content-Length", str(len(content)))]
    start_response(f"{status} {'OK' if status < 400 else 'Error'}", headers)
    return [content]
