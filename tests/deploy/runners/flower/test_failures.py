"""Whose fault it was."""

from __future__ import annotations

import pytest

from deploy.fl.checkpoints import Status
from deploy.runners.flower.status import last_exception, server_failure

RAISED = "ServerApp failed with exception: "


def test_what_the_app_said_itself_is_believed() -> None:
    assert server_failure(f"{RAISED}'x'", Status(run=2, error="KeyError: 'x'"), 2) == "KeyError: 'x'"


def test_what_an_earlier_run_said_is_not() -> None:
    assert server_failure("No heartbeat", Status(run=1, error="KeyError: 'x'"), 2) == ""


def test_an_app_without_our_loop_is_judged_by_what_flower_says() -> None:
    assert server_failure(f"{RAISED}no\nsuch column", None, 1) == "the ServerApp failed: no such column"


@pytest.mark.parametrize(
    "details",
    [
        "",
        "Task failed with unknown error.",
        "No heartbeat received from the task.",
        f"{RAISED}the SuperLink was lost: ConnectError: refused",
    ],
)
def test_a_lost_service_is_nobodys_fault(details: str) -> None:
    assert server_failure(details, Status(run=1), 1) == ""


def test_the_last_exception_of_a_log() -> None:
    log = """INFO: start
Traceback (most recent call last):
  File "a.py", line 1, in <module>
    import nothing
ModuleNotFoundError: No module named 'nothing'

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "b.py", line 2, in load
flwr.clientapp.client_app.LoadClientAppError: Unable to load module
INFO: sent
"""
    assert last_exception(log) == "flwr.clientapp.client_app.LoadClientAppError: Unable to load module"
    assert last_exception("INFO: fine\n") == ""
