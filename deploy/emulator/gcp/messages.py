"""What an emulated Google Cloud is asked, and what it answers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from werkzeug.wrappers import Response

from deploy.emulator.faults import CloudError


def json_answer(found: Mapping[str, object], status: int = 200) -> Response:
    """An object of JSON."""
    return Response(json.dumps(found), status, content_type="application/json; charset=UTF-8")


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


def gcp_failure(service: str, kind: str) -> GcpError:
    """How Google Cloud says what goes wrong on demand; see `deploy.emulator.faults.Failure`."""
    if kind == "throttled":
        status = 429 if service == "storage" else 403
        return GcpError("rateLimitExceeded", f"Rate Limit Exceeded for {service}", status)
    if kind == "internal":
        return GcpError("internalError", "Internal error", 500)
    if kind == "unavailable":
        return GcpError("backendError", "The service is currently unavailable.", 503)
    return GcpError(kind, "It is so for a while.", _STATUSES.get(kind, 400))


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
