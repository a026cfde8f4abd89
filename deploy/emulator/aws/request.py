"""Which service and action a request is for, and who asks."""

from __future__ import annotations

import io
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING
from urllib.parse import parse_qs

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIEnvironment

_CREDENTIAL = re.compile(r"Credential=([^/,\s]+)/\d{8}/([^/]+)/([^/]+)/aws4_request")
_TARGET_SERVICES = {
    "AWSPriceListService": "pricing",
    "AmazonSQS": "sqs",
    "ServiceQuotasV20190624": "servicequotas",
}
_BODIES = ("application/x-www-form-urlencoded", "application/x-amz-json")


@dataclass
class Call:
    """A request, as far as it is understood without its parameters.

    Attributes:
        service: as in permissions: "ec2".
        action: as in permissions: "RunInstances".
        region: signed for.
        access_key: key id; "" for an unsigned request.
        signed_s: epoch seconds of the caller's clock.
        body: of a request that is not S3's.
        buffered: whether `body` was read from the connection.
        json: whether the service speaks JSON.
    """

    service: str
    action: str
    region: str
    access_key: str
    signed_s: float | None
    body: bytes
    buffered: bool
    json: bool


def read_call(environ: WSGIEnvironment) -> Call:
    """Look at a request. The body of an S3 request stays in the connection."""
    found = _CREDENTIAL.search(environ.get("HTTP_AUTHORIZATION", ""))
    key, region, service = found.groups() if found else ("", "us-east-1", "s3")
    target = environ.get("HTTP_X_AMZ_TARGET", "")
    kind = environ.get("CONTENT_TYPE", "")
    buffered = service != "s3" and kind.startswith(_BODIES)
    body = b""
    if buffered:
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        environ["wsgi.input"] = io.BytesIO(body)
    if target:
        prefix, _, action = target.partition(".")
        service = _TARGET_SERVICES.get(prefix, service)
    elif service == "s3":
        action = _s3_action(environ)
    else:
        action = parse_qs(body.decode("latin-1")).get("Action", [""])[0]
    return Call(
        service=service,
        action=action,
        region=region,
        access_key=key,
        signed_s=_time_s(environ.get("HTTP_X_AMZ_DATE", "")),
        body=body,
        buffered=buffered,
        json=bool(target),
    )


def _time_s(text: str) -> float | None:
    try:
        return datetime.strptime(text, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC).timestamp()
    except ValueError:
        return None


def _s3_action(environ: WSGIEnvironment) -> str:
    """The permission that a request needs, of those that are about objects and buckets."""
    method = environ.get("REQUEST_METHOD", "GET")
    path = environ.get("PATH_INFO", "/").strip("/")
    query = parse_qs(environ.get("QUERY_STRING", ""), keep_blank_values=True)
    if not path:
        return "ListAllMyBuckets"
    if "/" not in path:
        if method in ("GET", "HEAD"):
            return "GetBucketLocation" if "location" in query else "ListBucket"
        return {"PUT": "CreateBucket", "DELETE": "DeleteBucket", "POST": "DeleteObject"}.get(method, "Bucket")
    if method == "DELETE":
        return "AbortMultipartUpload" if "uploadId" in query else "DeleteObject"
    return {"GET": "GetObject", "HEAD": "GetObject"}.get(method, "PutObject")
