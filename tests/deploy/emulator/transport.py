"""The clouds' clients without a network, and recordings made by hand for pools of any cloud."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import boto3
import requests
import urllib3
from botocore.awsrequest import AWSPreparedRequest, AWSResponse
from botocore.exceptions import ConnectionClosedError
from moto.core.botocore_stubber import MockRawResponse
from requests.adapters import HTTPAdapter
from werkzeug.test import Client, TestResponse

from spotweave.deploy.emulator.config import LostAnswerError
from spotweave.deploy.providers.gcp.clients import Clients
from tests.envs.traces_cases import write_trace

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIApplication

START_S = 1_750_000_000
URL = "http://emulator.invalid"


def trace(folder: Path, name: str, rows: list[tuple[int, int, float]]) -> str:
    """A recording of (seconds, available, price); the last row says where it ends."""
    lines = ["time_s,available,price_usd_hour", *(f"{at},{up},{price}" for at, up, price in rows)]
    return write_trace(folder / name, "\n".join(lines) + "\n", tick_s=None).name


def in_process(app: WSGIApplication) -> boto3.Session:
    """A session of boto3, all of whose clients talk to an application in this process."""
    keys = {"aws_access_key_id": "AKIAEMULATED00000000", "aws_secret_access_key": "not-a-secret"}
    session = boto3.Session(**keys, region_name="us-east-1")

    def send(request: AWSPreparedRequest, **_: Any) -> AWSResponse:
        try:
            answer = _ask(app, request)
        except LostAnswerError as error:
            raise ConnectionClosedError(endpoint_url=request.url) from error
        return AWSResponse(
            request.url, answer.status_code, dict(answer.headers), MockRawResponse(answer.data)
        )

    session.events.register_first("before-send", send)
    return session


class InProcess(Clients):
    """Google's clients, which talk to an application in this process."""

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


class _Adapter(HTTPAdapter):
    def __init__(self, app: WSGIApplication) -> None:
        super().__init__()
        self._app = app

    def send(self, request: requests.PreparedRequest, *_: Any, **__: Any) -> requests.Response:
        try:
            told = _ask(self._app, request)
        except LostAnswerError as error:
            raise requests.ConnectionError("Remote end closed connection without response") from error
        body, headers = io.BytesIO(told.data), dict(told.headers)
        raw = urllib3.HTTPResponse(body, headers, told.status_code, preload_content=False)
        return self.build_response(request, raw)


def _ask(app: WSGIApplication, request: AWSPreparedRequest | requests.PreparedRequest) -> TestResponse:
    """The answer of an application that runs here. Raises LostAnswerError."""
    body: Any = request.body or b""
    given: Mapping[str, Any] = request.headers
    # The body is whole here.
    headers = {
        name: value.decode() if isinstance(value, bytes) else str(value)
        for name, value in given.items()
        if name.lower() != "transfer-encoding"
    }
    url = urlsplit(str(request.url))
    return Client(app, use_cookies=False).open(
        url.geturl(),
        base_url=f"{url.scheme}://{url.netloc}",
        method=str(request.method),
        headers=headers,
        data=body.read() if hasattr(body, "read") else body,
    )
