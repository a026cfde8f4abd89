"""A store with hand-made content, and the service that shows it."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from deploy.dashboard.routes import router
from deploy.security.roles import Role
from deploy.security.tokens import AccessTokens
from deploy.server.app import create_app
from deploy.server.deciding import Deciders
from deploy.server.settings import ServerSettings
from deploy.store.store import Store
from tests.deploy.server.service import HandClock, Service, ToldScheduler
from tests.deploy.store.conftest import NOW


@pytest.fixture(scope="session")
def deciders() -> Deciders:
    return Deciders.load("multicloud", "round_cost")


@pytest.fixture
def service(tmp_path: Path, store: Store, deciders: Deciders) -> Service:
    clock, scheduler, jobs = HandClock(), ToldScheduler(), tmp_path / "jobs"
    clock.time_s = scheduler.passed_s = NOW
    tokens = {role: AccessTokens(store).create(f"the {role}", role, NOW).text for role in Role}
    app = create_app(
        ServerSettings(jobs=jobs),
        deciders,
        store,
        scheduler,
        clock,
        more_routes=[partial(router, store=store, scheduler=scheduler)],
    )
    return Service(app, store, jobs, clock, scheduler, tokens)
