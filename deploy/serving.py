"""A deployment that is served: the scheduler's loop in a thread, and the HTTP service next to it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import ExitStack
from importlib.metadata import version
from types import TracebackType
from typing import Self

from fastapi import APIRouter, FastAPI

from spotweave.deploy.config import DeploymentConfig, HttpConfig
from spotweave.deploy.dashboard import routes as dashboard
from spotweave.deploy.security.keys import TlsFiles, load_tls
from spotweave.deploy.security.tokens import AccessTokens
from spotweave.deploy.server.admission import Quotas
from spotweave.deploy.server.app import create_app
from spotweave.deploy.server.connections import ConnectionLimits
from spotweave.deploy.server.context import Context, ServerSettings
from spotweave.deploy.server.deciding import Deciders
from spotweave.deploy.server.routes import join
from spotweave.deploy.server.run import HttpListener
from spotweave.deploy.service import Service


class Serving:
    """A service and its listener. Nothing runs before `start`; then both do, until `stop`.

    Raises ValueError: one line, as of `Service`; or if it may not, or cannot, listen there.
    """

    def __init__(self, config: DeploymentConfig) -> None:
        http = config.http
        with ExitStack() as opened:
            self.service = Service(config)
            opened.callback(self.service.close)
            tls = _tls(config, self.service.clock.now())
            self.app = application(self.service)
            self._listener = HttpListener(self.app, http.host, http.port, tls, http.insecure)
            self._loop = threading.Thread(target=self.service.run, name="scheduler", daemon=True)
            self.url = _url(http, tls, self._listener.port)
            opened.pop_all()

    def lacks_tokens(self) -> bool:
        """Whether requests need an access token, and there is none."""
        service = self.service
        now_s = service.clock.now()
        return service.config.http.tokens and not AccessTokens(service.store).any_valid(now_s)

    def start(self) -> None:
        """Answer requests, and make passes. Raises ListenError."""
        self._listener.start()
        self._note("service.started")
        self._loop.start()

    def alive(self) -> bool:
        """Whether both still work: requests are answered, and passes are made."""
        return self._listener.alive() and self._loop.is_alive()

    def stop(self) -> None:
        """End both. What runs goes on; if nothing does, what jobs share ends too, unless another leads."""
        self.service.stopping.set()
        self._listener.stop()
        try:
            if self._loop.ident is not None:
                self._loop.join()
                if self.service.leads():
                    if self.service.idle():
                        self.service.shutdown()
                    self._note("service.ended")
        finally:
            self.service.close()

    def _note(self, kind: str) -> None:
        store, policy = self.service.store, self.service.config.policy
        with store.transaction():
            data = {"version": version("spotweave"), "policy": policy.market, "mode": str(policy.mode)}
            store.events.add(kind, self.service.clock.now(), data)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def application(service: Service) -> FastAPI:
    """The HTTP application of a deployment.

    Raises ValueError (one line) if its policies cannot answer requests.
    """
    config = service.config
    http = config.http
    settings = ServerSettings(
        jobs=config.jobs_folder,
        tokens=http.tokens,
        connections=ConnectionLimits(http.connections, http.connections_each),
        quotas=Quotas(**http.quotas.model_dump()),
    )
    policy = config.policy
    # Its own objects: the loop's are asked by one thread only.
    deciders = Deciders.load(
        policy.market,
        policy.federated,
        policy.weights,
        window=settings.window,
        guards=settings.guards,
        strict=False,
    )
    routes: list[Callable[[Context], APIRouter]] = [
        lambda context: dashboard.router(context, service.store, service, policy.mode)
    ]
    if any(one.joins for one in config.rented().values()):
        routes.append(lambda context: join.router(service.store, context.clock))
    return create_app(settings, deciders, service.store, service, service.clock, service.registry, routes)


def _tls(config: DeploymentConfig, now_s: float) -> TlsFiles | None:
    tls = config.http.tls
    if tls is None:
        return None
    return load_tls(config.folder / tls.certificate, config.folder / tls.key, now_s)


def _url(http: HttpConfig, tls: TlsFiles | None, port: int) -> str:
    host = http.host or "0.0.0.0"
    return f"{'http' if tls is None else 'https'}://{f'[{host}]' if ':' in host else host}:{port}"
