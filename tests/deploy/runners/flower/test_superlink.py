"""A SuperLink's log, which its ServerApp may fill."""

from __future__ import annotations

import os
import tracemalloc
from pathlib import Path

import pytest

from deploy.runners.flower import superlink as superlink_module
from deploy.runners.flower.identity import Identity
from deploy.runners.flower.superlink import SuperLink


@pytest.fixture
def superlink(tmp_path: Path) -> SuperLink:
    return SuperLink(tmp_path, "127.0.0.1", 1, Identity(tmp_path / "keys", tmp_path / "superlink"))


def test_the_last_line_of_a_log_of_any_length(superlink: SuperLink) -> None:
    assert superlink.last_line() == ""
    superlink.log.touch()
    os.truncate(superlink.log, 1 << 40)
    with superlink.log.open("a") as file:
        file.write("\nfirst\nno such option\n")
    tracemalloc.start()
    assert superlink.last_line() == "no such option"
    assert tracemalloc.get_traced_memory()[1] < 16 << 20
    tracemalloc.stop()


def test_a_log_that_grows_without_end_is_cut(superlink: SuperLink, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(superlink_module, "_LOG_MOST_BYTES", 1 << 20)
    superlink.trim_log()
    # As whoever writes to it does.
    with superlink.log.open("ab", buffering=0) as writer:
        writer.write(b"a line\n")
        superlink.trim_log()
        assert superlink.log.read_bytes() == b"a line\n"
        writer.write(b"x" * (2 << 20) + b"\nnewest\n")
        superlink.trim_log()
        writer.write(b"after\n")
    assert superlink.log.stat().st_size < 1 << 20
    assert superlink.log.read_text().endswith("x\nnewest\nafter\n")
    assert "[what came before was more than 1048576 bytes]" in superlink.log.read_text()
