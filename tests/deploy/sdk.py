"""The SDK reads the models of AWS's services again for each session, which takes longer than most tests."""

from __future__ import annotations

from functools import cache

import botocore.session
import pytest

_LOADER = cache(botocore.session.create_loader)


def read_models_once(patch: pytest.MonkeyPatch) -> None:
    """Let all sessions of this process share what one of them has read."""
    patch.setattr(botocore.session, "create_loader", _LOADER)
