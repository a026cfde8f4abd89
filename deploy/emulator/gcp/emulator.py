"""An emulated Google Cloud project, and the WSGI application that serves it: one address for all its APIs."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING

from werkzeug.wrappers import Request, Response

from spotweave.deploy.emulator.config import CloudError
from spotweave.deploy.emulator.gcp.compute import ROOT, Compute, body_of
from spotweave.deploy.emulator.gcp.storage import Storage
from spotweave.deploy.emulator.gcp.world import GceWorld, GcpEmulatorConfig, GcpError, disabled, json_answer
from spotweave.deploy.emulator.server import Emulator
from spotweave.deploy.model.clock import Clock

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIEnvironment


VARIABLE = "COMPUTE_EMULATOR_HOST"
"""Environment variable with the emulator's address, named like Google's own STORAGE_EMULATOR_HOST."""


# The Resource Manager's API: which permissions the caller has.
#
# https://cloud.google.com/resource-manager/reference/rest/v1/projects/testIamPermissions

_PATH = re.compile(r"/v1/projects/([^/]+):testIamPermissions")


class Projects:
    """Answers for one project."""

    api = "cloudresourcemanager.googleapis.com"

    def __init__(self, config: GcpEmulatorConfig) -> None:
        self._config = config

    def permission(self, request: Request) -> str:
        """What is counted; "" for what is not the Resource Manager's. Asking needs no permission."""
        asked = request.method == "POST" and _PATH.fullmatch(request.path)
        return "resourcemanager.projects.testIamPermissions" if asked else ""

    def answer(self, request: Request) -> Response:
        """Raises GcpError."""
        found = _PATH.fullmatch(request.path)
        if found is None or found[1] != self._config.project:
            raise GcpError("forbidden", "The caller does not have permission", 403)
        asked = body_of(request.get_data()).get("permissions", [])
        granted = [one for one in asked if one not in self._config.denied]
        return json_answer({"permissions": granted} if granted else {})


_LONGEST_WAIT_S = 10.0  # the real service waits up to two minutes; what is not done then is asked for again


class GcpEmulator(Emulator):
    """Any number of them fit into a process. Raises ConfigError if a recording cannot be used."""

    def __init__(self, config: GcpEmulatorConfig, clock: Clock | None = None) -> None:
        super().__init__()
        self.config: GcpEmulatorConfig = config
        self.world: GceWorld = GceWorld(config, clock)
        self._compute = Compute(config, self.world)
        self._others = (Storage(config), Projects(config))

    def environment(self, url: str) -> dict[str, str | None]:
        """See Emulator."""
        return {VARIABLE: url}

    def answer(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """See Emulator."""
        try:
            answer = self._answer(Request(environ))
        except CloudError as error:
            answer = json_answer(error.json() if isinstance(error, GcpError) else {}, error.status)
        return answer(environ, start_response)

    def _answer(self, request: Request) -> Response:
        for other in self._others:
            permission = other.permission(request)
            if permission:
                self._known(request, other.api)
                with self.world.lock:
                    spell = self._begin(permission, "")
                    answer = other.answer(request)
                    self._end(permission, spell)
                return answer
        self._known(request, "compute.googleapis.com")
        if not request.path.startswith(ROOT):
            raise GcpError("notFound", f"{request.path} is not emulated", 404)
        return json_answer(self._computed(request))

    def _known(self, request: Request, api: str) -> None:
        config = self.config
        if config.token is not None and request.headers.get("Authorization") != f"Bearer {config.token}":
            raise GcpError("authError", "Request had invalid authentication credentials.", 401)
        if api in config.disabled:
            raise disabled(api, config.project)

    def _computed(self, request: Request) -> dict[str, object]:
        world = self.world
        method, path = request.method, request.path
        permission = self._compute.route(method, path)[1]
        with world.lock:
            spell = self._begin(permission, self._compute.region(path))
            left_s = self._compute.left_s(path)
            if left_s and self.config.clock == "virtual":
                world.clock.sleep(left_s)
        if left_s and self.config.clock == "real":
            time.sleep(min(left_s, _LONGEST_WAIT_S))
        with world.lock:
            world.settle()

            def dark(region: str) -> bool:
                service, _, action = permission.partition(".")
                return any(
                    one.regions and one.concerns(service, action, region, world.clock.now())
                    for one in world.faults.config.spells
                )

            found = self._compute.answer(
                method, path, request.args.to_dict(), body_of(request.get_data()), dark
            )
            if spell == "empty":
                found = {
                    name: type(value)() for name, value in found.items() if isinstance(value, dict | list)
                }
            self._end(permission, spell)
            return found

    def _begin(self, permission: str, region: str) -> str:
        """Count a call and let it fail, as configured. Returns the spell that its answer is under."""
        world = self.world
        service, _, action = permission.partition(".")
        world.settle()
        self.calls[f"{service}:{action}"] += 1
        now_s = world.clock.now()
        world.faults.throttle(service, now_s)
        return world.faults.before(service, action, region, now_s)

    def _end(self, permission: str, spell: str) -> None:
        service, _, action = permission.partition(".")
        self.world.faults.after(service, action, spell)
