"""Errors as Google's APIs answer them.

https://cloud.google.com/apis/design/errors and
https://cloud.google.com/compute/docs/troubleshooting/troubleshooting-api-errors
"""

from __future__ import annotations

from typing import Any

from deploy.emulator.errors import CloudError

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
