"""The application on a socket."""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING

from moto.moto_server.werkzeug_app import MotoRequestHandler
from werkzeug.serving import make_server

from deploy.emulator.emulator import Emulator
from deploy.emulator.faults import LostAnswerError

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIEnvironment

_TICK_S = 0.25


class Server:
    """Serves an emulator in threads of its own, and lets its clock work while nobody asks.

    Args:
        emulator: what is served.
        host: address to listen on.
        port: 0 for a free one.

    Raises:
        OSError: if it cannot listen there.
    """

    def __init__(self, emulator: Emulator, host: str = "127.0.0.1", port: int = 0) -> None:
        self._emulator = emulator
        self._app = emulator.app()
        logging.getLogger("werkzeug").setLevel(logging.WARNING)
        # werkzeug ends the whole process where it cannot listen.
        taken = socket.create_server((host, port))
        self._server = make_server(
            host,
            taken.getsockname()[1],
            self._serve,
            threaded=True,
            request_handler=MotoRequestHandler,
            fd=taken.detach(),
        )
        self._closing = threading.Event()
        self._threads = [
            threading.Thread(target=self._server.serve_forever, name="cloud", daemon=True),
            threading.Thread(target=self._tick, name="clock", daemon=True),
        ]

    @property
    def url(self) -> str:
        """Where its clients find it."""
        return f"http://{self._server.host}:{self._server.port}"

    def start(self) -> None:
        """Serve from now on."""
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """Serve no more, and end what runs."""
        self._closing.set()
        self._server.shutdown()
        self._server.server_close()
        for thread in self._threads:
            thread.join()
        self._emulator.close()

    def _tick(self) -> None:
        while not self._closing.wait(_TICK_S):
            with self._emulator.world.lock:
                self._emulator.world.settle()

    def _serve(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        try:
            return self._app(environ, start_response)
        except LostAnswerError:
            environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
            raise ConnectionError("the answer is lost, as configured") from None
