"""Logs: one JSON line each, of all loggers, with context and without secrets."""

from __future__ import annotations

import io
import json
import logging
import secrets
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import structlog

from spotweave.deploy import logs


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    levels = {name: logging.getLogger(name).level for name in logs._CHATTY}
    try:
        yield io.StringIO()
    finally:
        structlog.reset_defaults()
        logging.captureWarnings(False)
        root.handlers[:] = handlers
        root.setLevel(level)
        for name, one in levels.items():
            logging.getLogger(name).setLevel(one)


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_own_and_foreign_loggers_are_json_lines_with_context(stream: io.StringIO) -> None:
    logs.configure(stream=stream)
    with structlog.contextvars.bound_contextvars(job_id="j1", decision_id=7):
        structlog.get_logger("scheduler").info("placed", offer="spot")
        logging.getLogger("some.package").warning("it is %d degrees", 40)
    uvicorn = logging.getLogger("uvicorn.error")
    uvicorn.info("Started server process")
    uvicorn.error("an error")
    logging.getLogger("sqlalchemy.pool").warning("an overflow")
    own, library, server, database = lines(stream)
    assert (own["event"], own["offer"], own["job_id"], own["decision_id"]) == ("placed", "spot", "j1", 7)
    assert (own["level"], own["logger"]) == ("info", "scheduler")
    assert own["timestamp"].endswith("Z")
    assert (library["event"], library["job_id"]) == ("it is 40 degrees", "j1")
    assert (server["event"], server["logger"]) == ("an error", "uvicorn.error")
    assert "job_id" not in server
    assert database["logger"] == "sqlalchemy.pool"


def test_a_traceback_is_in_its_line(stream: io.StringIO) -> None:
    logs.configure(stream=stream)
    try:
        raise KeyError("gone")
    except KeyError:
        structlog.get_logger("x").exception("a pass failed")
        logging.getLogger("y").exception("another failed")
    for line in lines(stream):
        assert "KeyError: 'gone'" in line["exception"]


def test_secrets_are_hidden_wherever_they_are_and_nothing_else(stream: io.StringIO) -> None:
    logs.configure(stream=stream)
    node = secrets.token_urlsafe(32)
    access = f"spw_0123456789ab_{secrets.token_urlsafe(32)}"
    password = "hunter22"
    log = structlog.get_logger("x")
    url, header = f"postgresql://me:{password}@host/db", {"a": [f"Bearer {access}"]}
    log.info(f"failed with {access}", url=url, header=header)
    names = ["i-0123456789abcdef", "a" * 43, "/var/lib/spotweave/x"]
    names.append("federated-mnist-of-three-hospitals-0a1b2c3d")
    log.info("see", names=names, token_id="0123456789ab", token=None)
    log.info("launch", node_token=node, authorization="short", why=ValueError(f"refused {node}"))
    logging.getLogger("y").warning("told %s", node)
    try:
        raise RuntimeError(f"with\n{node}")
    except RuntimeError:
        log.exception("a pass failed")
    text = stream.getvalue()
    assert len(lines(stream)) == 5
    seen = lines(stream)[1]
    assert (seen["names"], seen["token_id"]) == (names, "0123456789ab"), "these are no secrets"
    for secret in (node, access, password, "short"):
        assert secret not in text
    assert "spw_0123456789ab_[hidden]" in text, "whose token it was can be told"


def test_the_level_and_the_form_for_people(stream: io.StringIO) -> None:
    logs.configure("console", "warning", stream)
    structlog.get_logger("x").info("not this")
    structlog.get_logger("x").warning("but this", job_id="j1", token="abc")
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.warn("and that", stacklevel=1)
    first, *_ = stream.getvalue().splitlines()
    assert "not this" not in stream.getvalue()
    assert "but this" in first
    assert "job_id=j1" in first
    assert "abc" not in first
    assert "and that" in stream.getvalue()
    with pytest.raises(ValueError, match="expected json or console"):
        logs.configure("xml", stream=stream)
