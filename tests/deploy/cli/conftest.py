"""A real service on a real port, with a scheduler that shows what it is told, and its commands."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from spotweave.deploy.security.tokens import Role
from spotweave.deploy.server.deciding import Deciders
from spotweave.deploy.server.run import HttpListener as Listening
from spotweave.deploy.store.store import Store
from tests.deploy.cli.commands import spotweave
from tests.deploy.server.service import Service, make_service

JOB = """
name: hello
work: {kind: spark-batch, script: hello.py, args: [words.txt, "3"], deadline_s: 600}
"""


@pytest.fixture
def job_file(tmp_path: Path) -> Path:
    folder = tmp_path / "mine"
    folder.mkdir()
    secret = "not named by the job\n"
    files = {"hello.py": "print('hello')\n", "words.txt": "one two\n", "secret.txt": secret, "job.yaml": JOB}
    for name, text in files.items():
        (folder / name).write_text(text)
    return folder / "job.yaml"


@pytest.fixture(autouse=True)
def _no_settings_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SPOTWEAVE_SERVER", "SPOTWEAVE_TOKEN", "SPOTWEAVE_TRACEBACK", "SSL_CERT_FILE"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(autouse=True)
def _the_services_log_apart_from_what_commands_print() -> Iterator[None]:
    with capture_logs():
        yield


@pytest.fixture(scope="session")
def rules() -> Deciders:
    return Deciders.load("cheapest", "round_cost")


@pytest.fixture
def service(tmp_path: Path, store: Store, rules: Deciders) -> Service:
    return make_service(tmp_path, store, rules, poll_s=0.05)


@pytest.fixture
def run(service: Service, url: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A submitter's commands."""
    monkeypatch.setenv("SPOTWEAVE_SERVER", url)
    monkeypatch.setenv("SPOTWEAVE_TOKEN", service.tokens[Role.SUBMITTER])
    return spotweave


@pytest.fixture
def url(service: Service) -> Iterator[str]:
    with Listening(service.app, "127.0.0.1", 0) as listening:
        yield f"http://127.0.0.1:{listening.port}"
