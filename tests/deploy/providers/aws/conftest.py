"""The fixtures of the emulated account."""

from __future__ import annotations

from tests.deploy.emulator.aws.conftest import cloud, make, recorded

__all__ = ["cloud", "make", "recorded"]
