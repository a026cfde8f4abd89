"""What is told of a training."""

from __future__ import annotations

import pytest

from deploy.fl.exchange import Participation, Status
from deploy.runners.flower.reporting import round_left_s


def test_expected_time_until_all_others_have_delivered() -> None:
    status = Status(
        run=1,
        clients={
            "a": Participation(owes=False, last_epoch_s=5.0),
            "b": Participation(owes=True, asked_s=100.0, last_epoch_s=30.0),
            "c": Participation(owes=True),
        },
    )
    # c was never measured: it takes what the user expects, from when it is asked.
    assert round_left_s(status, "a", 20.0, 104.0) == pytest.approx(26.0)
    assert round_left_s(status, "b", 20.0, 104.0) == pytest.approx(20.0)
    assert round_left_s(status, "a", None, 104.0) is None
    # b has outlasted what it took before: a twentieth of that time is expected on top.
    assert round_left_s(status, "c", None, 140.0) == pytest.approx(2.0)
