"""Google's clients without a network: their requests go straight into the application."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import requests
import urllib3
from requests.adapters import BaseAdapter

from deploy.emulator.faults import LostAnswerError
from deploy.providers.gcp.clients import Clients
from tests.deploy.emulator.aws.transport import environ_of

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
