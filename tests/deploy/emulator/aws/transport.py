"""boto3 without a network: its requests go straight into the application."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import boto3
from botocore.awsrequest import AWSPreparedRequest, AWSResponse
from botocore.exceptions import ConnectionClosedError
from moto.core.botocore_stubber import MockRawResponse

from deploy.emulator.faults import LostAnswerError

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIApplication, WSGIEnvironment


def in_process(
    app: WSGIApplication, access_key: str = "AKIAEMULATED00000000", region: str = "us-east-1"
) -> boto3.Session:
    """A session all of whose clients talk to an application in this process.

    Args:
        app: of an emulator.
        access_key: id that requests are signed with.
        region: default of the clients.
    """
    session = boto3.Session(
        aws_access_key_id=access_key, aws_secret_access_key="not-a-secret", region_name=region
    )
    session.events.register_first("before-send", _Transport(app).send)
    return session


class _Transport:
    """Answers botocore's `before-send`, in the place of HTTP."""

    def __init__(self, app: WSGIApplication) -> None:
        self._app = app

    def send(self, request: AWSPreparedRequest, **_: Any) -> AWSResponse:
        status, headers = 0, {}

        def start_response(line: str, given: list[tuple[str, str]], exc_info: Any = None) -> Any:
            nonlocal status, headers
            status, headers = int(line.split(" ", 1)[0]), dict(given)

        try:
            content = b"".join(self._app(_environ(request), start_response))
        except LostAnswerError as error:
            raise ConnectionClosedError(endpoint_url=request.url) from error
        return AWSResponse(request.url, status, headers, MockRawResponse(content))


def _environ(request: AWSPreparedRequest) -> WSGIEnvironment:
    url = urlsplit(request.url)
    body = request.body or b""
    if hasattr(body, "read"):
        body = body.read()
    if isinstance(body, str):
        body = body.encode()
    environ: dict[str, Any] = {
        "REQUEST_METHOD": request.method,
        "SCRIPT_NAME": "",
        "PATH_INFO": url.path or "/",
        "RAW_URI": f"{url.path or '/'}{'?' + url.query if url.query else ''}",
        "QUERY_STRING": url.query,
        "SERVER_NAME": url.hostname or "localhost",
        "SERVER_PORT": str(url.port or (443 if url.scheme == "https" else 80)),
        "SERVER_PROTOCOL": "HTTP/1.1",
        "REMOTE_ADDR": "127.0.0.1",
        "wsgi.url_scheme": url.scheme,
        "wsgi.input": io.BytesIO(body),
        "wsgi.errors": io.StringIO(),
        "wsgi.version": (1, 0),
        "wsgi.multithread": True,
        "wsgi.multiprocess": False,
        "wsgi.run_once": False,
        "HTTP_HOST": url.netloc,
    }
    for name, value in request.headers.items():
        if name.lower() == "transfer-encoding":
            # The body is whole here.
            continue
        key = name.upper().replace("-", "_")
        text = value.decode() if isinstance(value, bytes) else str(value)
        environ[key if key in ("CONTENT_TYPE", "CONTENT_LENGTH") else f"HTTP_{key}"] = text
    environ["CONTENT_LENGTH"] = str(len(body))
    return environ
