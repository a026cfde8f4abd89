"""What an emulated Google Cloud is asked, and what it answers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from deploy.emulator.errors import CloudError


@dataclass(frozen=True)
class Request:
    """What was asked for.

    Attributes:
        method: of HTTP.
        path: decoded.
        query: parameters; the values of one that is repeated are joined by commas.
        headers: by their names in lower case.
        content: the body.
    """

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    content: bytes


@dataclass(frozen=True)
class Answer:
    """What is answered: JSON where no header says otherwise."""

    content: bytes
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)


def json_answer(found: Mapping[str, object], status: int = 200) -> Answer:
    """An object of JSON."""
    return Answer(json.dumps(found).encode(), status)


# Errors as Google's APIs answer them.
#
# https://cloud.google.com/apis/design/errors and
# https://cloud.google.com/compute/docs/troubleshooting/troubleshooting-api-errors

_STATUSES = {"backendError": 503, "internalError": 500, "rateLimitExceeded": 403, "authError": 401}


class GcpError(CloudError):
    """A refusal; `code` is the reason of the error's first entry."""

    def json(self) -> dict[str, Any]:
        """The body of the answer."""
        return {
            "error": {
                "code": self.status,
                "message": self.message,
                "errors": [{"message": self.message, "domain": "global", "reason": self.code}],
            }
        }


class GcpFailures:
    """How Google Cloud says what goes wrong on demand; see `deploy.emulator.faults.Failures`."""

    def throttled(self, service: str) -> GcpError:
        """Too many requests."""
        status = 429 if service == "storage" else 403
        return GcpError("rateLimitExceeded", f"Rate Limit Exceeded for {service}", status)

    def failed(self, service: str, *, internal: bool) -> GcpError:
        """Its own fault."""
        if internal:
            return GcpError("internalError", "Internal error", 500)
        return GcpError("backendError", "The service is currently unavailable.", 503)

    def coded(self, code: str) -> GcpError:
        """A code that a configuration names."""
        return GcpError(code, "It is so for a while.", _STATUSES.get(code, 400))


def not_found(what: str) -> GcpError:
    """A resource."""
    return GcpError("notFound", f"The resource '{what}' was not found", 404)


def denied(permission: str, what: str) -> GcpError:
    """A permission."""
    return GcpError("forbidden", f"Required '{permission}' permission for '{what}'", 403)


def disabled(api: str, project: str) -> GcpError:
    """An API, such as "compute.googleapis.com", that the project has not enabled."""
    text = (
        f"The API has not been used in project {project} before or it is disabled. Enable it by visiting "
        f"https://console.developers.google.com/apis/api/{api}/overview?project={project} then retry."
    )
    return GcpError("accessNotConfigured", text, 403)
