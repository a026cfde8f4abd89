"""boto3 without a network: its requests go straight into the application."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

import boto3
import requests
import urllib3
from botocore.awsrequest import AWSPreparedRequest, AWSResponse
from botocore.exceptions import ConnectionClosedError
from moto.core.botocore_stubber import MockRawResponse
from requests.adapters import BaseAdapter

from deploy.emulator.faults import LostAnswerError
from deploy.providers.gcp.clients import Clients

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
            environ = environ_of(str(request.method), request.url, dict(request.headers), _body(request))
            content = b"".join(self._app(environ, start_response))
        except LostAnswerError as error:
            raise ConnectionClosedError(endpoint_url=request.url) from error
        return AWSResponse(request.url, status, headers, MockRawResponse(content))


def _body(request: AWSPreparedRequest) -> bytes:
    body = request.body or b""
    content: bytes | str = body.read() if hasattr(body, "read") else body
    return content.encode() if isinstance(content, str) else content


def environ_of(method: str, url: str, headers: Mapping[str, Any], body: bytes) -> WSGIEnvironment:
    """What a server makes of a request."""
    parts = urlsplit(url)
    environ: dict[str, Any] = {
        "REQUEST_METHOD": method,
        "SCRIPT_NAME": "",
        "PATH_INFO": parts.path or "/",
        "RAW_URI": f"{parts.path or '/'}{'?' + parts.query if parts.query else ''}",
        "QUERY_STRING": parts.query,
        "SERVER_NAME": parts.hostname or "localhost",
        "SERVER_PORT": str(parts.port or (443 if parts.scheme == "https" else 80)),
        "SERVER_PROTOCOL": "HTTP/1.1",
        "REMOTE_ADDR": "127.0.0.1",
        "wsgi.url_scheme": parts.scheme,
        "wsgi.input": io.BytesIO(body),
        "wsgi.errors": io.StringIO(),
        "wsgi.version": (1, 0),
        "wsgi.multithread": True,
        "wsgi.multiprocess": False,
        "wsgi.run_once": False,
        "HTTP_HOST": parts.netloc,
    }
    for name, value in headers.items():
        if name.lower() == "transfer-encoding":
            # The body is whole here.
            continue
        key = name.upper().replace("-", "_")
        text = value.decode() if isinstance(value, bytes) else str(value)
        environ[key if key in ("CONTENT_TYPE", "CONTENT_LENGTH") else f"HTTP_{key}"] = text
    environ["CONTENT_LENGTH"] = str(len(body))
    return environ


# Google's clients without a network: their requests go straight into the application.


if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIApplication

URL = "http://emulator.invalid"


class InProcess(Clients):
    """Clients that talk to an application in this process.

    Args:
        app: of an emulator.
    """

    def __init__(self, app: WSGIApplication) -> None:
        super().__init__(URL)
        self._adapter = _Adapter(app)

    def get(self, service: str) -> Any:
        client = super().get(service)
        client.transport._session.mount(URL, self._adapter)
        return client

    @property
    def storage(self) -> Any:
        client = super().storage
        client._http.mount(URL, self._adapter)
        return client

    @property
    def session(self) -> Any:
        session = super().session
        session.mount(URL, self._adapter)
        return session


class _Adapter(BaseAdapter):
    def __init__(self, app: WSGIApplication) -> None:
        super().__init__()
        self._app = app

    def send(self, request: requests.PreparedRequest, *_: Any, **__: Any) -> requests.Response:
        body: Any = request.body or b""
        content = body.encode() if isinstance(body, str) else body
        environ = environ_of(str(request.method), str(request.url), request.headers, content)
        environ["PATH_INFO"] = unquote(environ["PATH_INFO"])
        answer = requests.Response()
        answer.request, answer.url = request, str(request.url)

        def start_response(line: str, headers: list[tuple[str, str]], exc_info: Any = None) -> Any:
            answer.status_code = int(line.split(" ", 1)[0])
            answer.headers.update(headers)

        try:
            answered = b"".join(self._app(environ, start_response))
        except LostAnswerError as error:
            raise requests.ConnectionError("Remote end closed connection without response") from error
        answer.raw = urllib3.HTTPResponse(io.BytesIO(answered), answer.headers, preload_content=False)
        return answer

    def close(self) -> None:
        pass
