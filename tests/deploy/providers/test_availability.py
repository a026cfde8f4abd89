"""The record of refusals: cool-downs that double, shares and spells by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from deploy.providers.base import ProviderError
from deploy.providers.offers import Availability

DAY_S = 86_400.0


def test_a_refusing_offer_is_left_alone_twice_as_long_each_time(tmp_path: Path) -> None:
    record = Availability(tmp_path / "a.json", 100.0, 350.0)
    assert record.reason("x", 0.0) is None
    assert record.down("x", 1000.0, "no room") == 1100.0
    assert record.reason("x", 1099.0) == ("no room", 1100.0)
    assert record.reason("x", 1100.0) is None
    assert record.down("x", 2000.0, "no room") == 2200.0
    assert record.down("x", 3000.0, "no room") == 3350.0
    record.up("x", 3100.0)
    assert record.reason("x", 3100.0) is None
    assert record.down("x", 4000.0, "no room") == 4100.0


def test_shares_and_spells_are_those_of_the_record() -> None:
    record = Availability(None, 100.0, 100.0)
    history = record.history("x", 0.0)
    assert (history.up_ratio, history.spell_s, history.mean_up_s) == (1.0, 0.0, 0.0)
    record.down("x", 300.0, "no room")
    record.down("x", 500.0, "no room")
    # Up 0-300, down 300-400, up 400-500, down 500-600, up 600-1000.
    history = record.history("x", 1000.0)
    assert history.up_ratio == pytest.approx(0.8)
    assert history.spell_s == pytest.approx(400.0)
    assert history.mean_up_s == pytest.approx(200.0)
    assert record.history("x", 550.0).spell_s == pytest.approx(50.0)
    # The share is one of the latest day; after two it is whole again.
    assert record.history("x", 2 * DAY_S).up_ratio == 1.0


def test_spells_of_long_ago_are_forgotten() -> None:
    record = Availability(None, 100.0, 100.0)
    record.history("x", 0.0)
    record.down("x", 1000.0, "no room")
    assert record.history("x", 1050.0).mean_up_s == pytest.approx(1000.0)
    record.down("x", 9 * DAY_S, "no room")
    # The first one is out, and the record begins where it ended.
    assert record.history("x", 9 * DAY_S + 50).mean_up_s == pytest.approx(9 * DAY_S - 1100.0)


def test_it_survives_a_restart_and_a_broken_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "state" / "a.json"
    Availability(path, 100.0, 350.0).down("x", 1000.0, "no room")
    again = Availability(path, 100.0, 350.0)
    assert again.reason("x", 1050.0) == ("no room", 1100.0)
    assert again.down("x", 2000.0, "no room") == 2200.0
    path.write_text("{")
    with pytest.raises(ProviderError, match=str(path)):
        Availability(path, 100.0, 350.0)
