"""What Google Cloud answers, in this project's terms: which failure it is, in one line that helps.

https://cloud.google.com/compute/docs/troubleshooting/troubleshooting-api-errors
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import requests
from google.api_core import exceptions as api
from google.auth import exceptions as auth

from deploy.providers.base import CapacityError, ProviderError, QuotaError, RefusedError, ThrottledError

REMEDY = "grant deploy/providers/gcp/role.yaml (docs/gcp.md)"
"""For a permission that is missing."""
STORAGE_REMEDY = "grant deploy/providers/gcp/checkpoints_role.yaml on the bucket (docs/gcp.md)"
"""The same, on objects."""
_CAPACITY = (
    "ZONE_RESOURCE_POOL_EXHAUSTED",
    "RESOURCE_POOL_EXHAUSTED",
    "UNSUPPORTED_OPERATION_STOCKOUT",
    "VM_MIN_COUNT_NOT_REACHED",
    "IP_SPACE_EXHAUSTED",
)
_PERMISSION = re.compile(
    r"Required '(?P<compute>[a-zA-Z.]+)' permission(?: for '(?P<where>[^']+)')?"
    r"|does not have (?P<storage>storage\.[a-zA-Z.]+) access"
)
"""As Compute Engine and as Cloud Storage say it."""
_API = re.compile(r"[a-z]+\.googleapis\.com(?=/|\b)")
_REFUSED = (
    "Google Cloud does not accept these credentials, or they have expired: "
    "gcloud auth application-default login"
)
_THROTTLED = ("rateLimitExceeded", "userRateLimitExceeded", "RATE_LIMIT_EXCEEDED")
_DISABLED = ("accessNotConfigured", "SERVICE_DISABLED")
_INVALID = ("invalid", "badRequest", "required", "invalidParameter", "parseError", "INVALID_ARGUMENT")
"""What is wrong with a request whenever it is made. What a code that we do not know means may pass."""
_QUOTA = ("quotaExceeded", "QUOTA_EXCEEDED", "limitExceeded")


def of_operation(code: str, message: str, doing: str) -> ProviderError:
    """The error with which an operation ended."""
    text = " ".join(message.split())
    if code.startswith(_CAPACITY):
        return CapacityError(f"{doing}: {code}: {text}")
    if code in _QUOTA:
        return QuotaError(f"{doing}: {code}: {text} Ask for more under IAM & Admin, Quotas, or use less")
    if code in ("RESOURCE_NOT_FOUND", "INVALID_FIELD_VALUE", "PERMISSIONS_ERROR", "CONDITION_NOT_MET"):
        return RefusedError(f"{doing}: {code}: {text}")
    return ProviderError(f"{doing}: {code}: {text}")


def reason_of(error: BaseException | None) -> str:
    """The API's own reason, such as "quotaExceeded"; "" for failures that came from elsewhere."""
    if not isinstance(error, api.GoogleAPICallError):
        return ""
    for entry in error.errors or ():
        if isinstance(entry, dict) and entry.get("reason"):
            return str(entry["reason"])
    return str(error.reason or "")


def translated(error: Exception, doing: str) -> ProviderError:
    """The error of the interface that an error of Google's clients is, which came of `doing` something."""
    if isinstance(error, api.GoogleAPICallError):
        return _answered(error, doing)
    text = " ".join(str(error).split())
    if isinstance(error, auth.InvalidOperation):
        # What has no secret, as towards an emulator, cannot be renewed.
        return RefusedError(f"{doing}: {_REFUSED}")
    if isinstance(error, auth.DefaultCredentialsError):
        return RefusedError(f"{doing}: no Google credentials: gcloud auth application-default login")
    if isinstance(error, auth.RefreshError):
        return RefusedError(
            f"{doing}: the credentials have expired or were withdrawn: gcloud auth application-default login"
        )
    if isinstance(error, api.RetryError):
        return ProviderError(f"{doing}: no answer from Google Cloud: {text}")
    return ProviderError(f"{doing}: Google Cloud cannot be reached: {text}")


def _answered(error: api.GoogleAPICallError, doing: str) -> ProviderError:
    if not error.errors and isinstance(error.response, requests.Response):
        # Of uploads and downloads the client hands on the answer as it came.
        error = api.from_http_response(error.response)  # type: ignore[no-untyped-call]
    reason, status = reason_of(error), int(error.code or 0)
    text = " ".join(str(error.message).split())
    # The client puts method and address before what was said.
    text = re.sub(r"^(GET|POST|PUT|DELETE) \S+: ", "", text)
    if reason in _THROTTLED or status == 429:
        return ThrottledError(
            f"{doing}: {reason or status}: too many requests; they are tried again more slowly"
        )
    if reason.startswith(_CAPACITY):
        return CapacityError(f"{doing}: {reason}: {text}")
    if reason in _QUOTA:
        return QuotaError(f"{doing}: {reason}: {text} Ask for more under IAM & Admin, Quotas, or use less")
    if reason in _DISABLED:
        # The link in the message names it.
        name = next(iter(_API.findall(text.partition("/apis/api/")[2])), "compute.googleapis.com")
        return RefusedError(f"{doing}: the API {name} is not enabled: gcloud services enable {name}")
    if status == 401:
        return RefusedError(f"{doing}: {_REFUSED}")
    if status == 403:
        needed = _PERMISSION.search(text)
        what = f"is refused ({text})"
        if needed:
            where = f" on {needed['where']}" if needed["where"] else ""
            what = f"may not {needed['compute'] or needed['storage']}{where}"
        remedy = STORAGE_REMEDY if needed and needed["storage"] else REMEDY
        return RefusedError(f"{doing}: this identity {what}: {remedy}")
    if status == 404 or (status == 400 and reason in _INVALID):
        return RefusedError(f"{doing}: {text}")
    if status == 409:
        return RefusedError(f"{doing}: {reason or 'conflict'}: {text}")
    return ProviderError(f"{doing}: Google Cloud failed ({status} {reason}): {text}")


@contextmanager
def gcp_errors(doing: str) -> Iterator[None]:
    """Turns what the client raises inside into the interface's errors."""
    try:
        yield
    except (api.GoogleAPIError, auth.GoogleAuthError, requests.RequestException) as error:
        raise translated(error, doing) from error
