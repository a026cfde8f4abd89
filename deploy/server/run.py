"""Listening: where it is allowed, with TLS where there is a certificate.

`python -m spotweave.deploy.server.run` is a service of its own: a policy server, and with --database one that
takes jobs for a scheduler that works with the same database.
"""

from __future__ import annotations

import argparse
import errno
import socket
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Self

import structlog
import uvicorn
from fastapi import FastAPI

from spotweave.deploy import logs
from spotweave.deploy.model.clock import SystemClock
from spotweave.deploy.security.keys import SecurityError, TlsFiles, listen_allowed, load_tls
from spotweave.deploy.security.tokens import AccessTokens
from spotweave.deploy.server.app import create_app
from spotweave.deploy.server.connections import FILES_KEPT, Connections, Server, allow_files
from spotweave.deploy.server.context import Context, ServerSettings
from spotweave.deploy.server.deciding import Deciders
from spotweave.deploy.store.store import Store

log = structlog.get_logger("server")

DEFAULT_PORT = 8421
_START_S = 30.0
_END_S = 5


class ListenError(ValueError):
    """The service cannot listen there; one line."""


def bind(host: str, port: int) -> socket.socket:
    """A listening socket; port 0 for any that is free.

    Raises ListenError if the port is in use, or the address is not one of this machine.
    """
    try:
        family, _, _, _, address = socket.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except (OSError, UnicodeError, OverflowError) as error:
        raise ListenError(f"cannot listen on {host!r}: there is no such address on this machine") from error
    # asyncio sets TCP_NODELAY only on sockets whose protocol is given. Without it the body of each answer
    # waits up to 40 ms for the client to acknowledge the headers.
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(socket.SOMAXCONN)
    except OSError as error:
        listening.close()
        if error.errno == errno.EADDRINUSE:
            raise ListenError(
                f"port {port} on {host or 'every address'} is in use: stop what uses it (another service?), "
                "or choose another port"
            ) from error
        raise ListenError(f"cannot listen on {host or 'every address'}:{port}: {error.strerror}") from error
    return listening


class HttpListener:
    """An application and the socket it listens on.

    `host` "" is every address, `port` 0 any that is free; `insecure_in_words` see `listen_allowed`. Raises
    SecurityError if it may not listen there; ListenError if it cannot.
    """

    def __init__(
        self,
        app: FastAPI,
        host: str = "127.0.0.1",
        port: int = DEFAULT_PORT,
        tls: TlsFiles | None = None,
        insecure_in_words: str | None = None,
    ) -> None:
        context: Context = app.state.context
        has_tokens = (
            context.settings.tokens
            and context.store is not None
            and AccessTokens(context.store).any_valid(context.clock.now())
        )
        listen_allowed(
            host, has_tokens=has_tokens, has_tls=tls is not None, insecure_in_words=insecure_in_words
        )
        self._socket = bind(host, port)
        self.port = int(self._socket.getsockname()[1])
        """On which it listens."""
        config = uvicorn.Config(
            app,
            ssl_certfile=None if tls is None else tls.certificate,
            ssl_keyfile=None if tls is None else tls.key,
            log_config=None,
            access_log=False,
            server_header=False,
            ws="none",
            # No speed-ups that happen to be installed: this is what is tested.
            http="h11",
            loop="asyncio",
            timeout_graceful_shutdown=_END_S,
        )
        limits = context.settings.connections
        room = allow_files() - FILES_KEPT
        if room < limits.most:
            log.warning("few files may be open at once: raise LimitNOFILE", connections=max(1, room))
            limits = replace(limits, most=max(1, room))
        self._server = Server(config, context.closing, Connections(limits, context.metrics))
        self._thread: threading.Thread | None = None

    def run(self) -> None:
        """Serve until SIGINT or SIGTERM (in the main thread), or until `stop`."""
        try:
            self._server.run(sockets=[self._socket])
        finally:
            self._socket.close()

    def start(self) -> None:
        """Serve in a thread of its own; returns when it answers."""
        self._thread = threading.Thread(target=self.run, name="http", daemon=True)
        self._thread.start()
        end = time.monotonic() + _START_S
        while not self._server.started:
            if not self._thread.is_alive() or time.monotonic() > end:
                raise ListenError("the HTTP service did not start: see its log")
            time.sleep(0.01)

    def alive(self) -> bool:
        """Whether it serves in a thread of its own, as far as is known."""
        return self._thread is not None and self._thread.is_alive()

    def stop(self) -> None:
        """End it, in a few seconds also if clients hold on."""
        self._server.should_exit = True
        if self._thread is not None:
            self._thread.join(_START_S)
            self._thread = None
        self._socket.close()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m spotweave.deploy.server.run", description=__doc__)
    parser.add_argument(
        "--host", default="127.0.0.1", help="where to listen; beyond loopback needs tokens and TLS"
    )
    parser.add_argument("--port", type=int, default=DEFAULT_PORT, help="0: any that is free")
    parser.add_argument("--policy", default="spotweave", help="rule, released policy or path, for Spark jobs")
    parser.add_argument("--federated-policy", default="spotweave", help="the same, for federated tasks")
    parser.add_argument("--database", help="sqlite:///PATH or postgresql://...; without, it only decides")
    parser.add_argument("--key-file", type=Path, help="of the deployment (default for SQLite: PATH.key)")
    parser.add_argument("--jobs", type=Path, help="folder for the files of jobs; needed with --database")
    parser.add_argument("--no-tokens", action="store_true", help="answer without access tokens")
    parser.add_argument("--tls-certificate", type=Path, help="PEM file")
    parser.add_argument("--tls-key", type=Path, help="PEM file, permissions 0600")
    parser.add_argument("--insecure", metavar="WORDS", help="listen without protection, said in words")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until interrupted. Returns the exit code: 2 if it could not, with one line why."""
    options = _options(arguments)
    try:
        _serve(options)
    except ValueError as error:
        print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    return 0


def _serve(options: argparse.Namespace) -> None:
    clock = SystemClock()
    if (options.tls_certificate is None) != (options.tls_key is None):
        raise SecurityError("TLS needs both --tls-certificate and --tls-key: give the other one too")
    tls = None
    if options.tls_certificate is not None:
        tls = load_tls(options.tls_certificate, options.tls_key, clock.now())
    store = None
    if options.database is not None:
        store = Store.open(options.database, clock.now(), key_file=options.key_file)
    try:
        settings = ServerSettings(jobs=options.jobs, tokens=store is not None and not options.no_tokens)
        deciders = Deciders.load(
            options.policy, options.federated_policy, window=settings.window, guards=settings.guards
        )
        app = create_app(settings, deciders, store, clock=clock)
        service = HttpListener(app, options.host, options.port, tls, options.insecure)
        scheme = "http" if tls is None else "https"
        print(f"listening on {scheme}://{options.host}:{service.port}", flush=True)
        service.run()
    finally:
        if store is not None:
            store.close()


if __name__ == "__main__":
    logs.configure()
    sys.exit(main())
