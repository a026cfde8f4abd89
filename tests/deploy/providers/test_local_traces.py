"""The local provider's recordings, also those that ship: by hand, and against the bundle."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotweave.deploy.providers import local
from spotweave.deploy.providers.local.config import LocalConfig
from spotweave.deploy.providers.local.traces import RecordedMarket, load_recording
from spotweave.envs.traces.bundle import load_bundle
from spotweave.envs.traces.storage import TraceError
from tests.envs.traces_cases import write_trace

DAY_S = 86400.0
FOLDER = Path(local.__file__ or "").parent / "recorded"
ZONES = sorted(path.parent.name for path in FOLDER.glob("*/trace.json"))
# Up for 100 s, down for 50 s, up and dear for 50 s; 200 s a round.
RECORDING = RecordedMarket((0.0, 100.0, 150.0), (True, False, True), (1.0, 1.0, 3.0), 200.0)


def test_the_circle_by_hand() -> None:
    assert [RECORDING.available(at) for at in (0, 99.9, 100, 149, 150, 199, 200, 300, 1e6)] == [
        *(True, True, False, False, True, True, True, False, True)
    ]
    assert RECORDING.price_usd_hour(375) == 3.0
    assert RECORDING.ends_s(20) == 100
    assert RECORDING.ends_s(160) == 300
    # The limit is what ends it at 350, in the next round.
    assert (
        RecordedMarket((0.0, 100.0, 150.0), (True, True, True), (1.0, 1.0, 3.0), 200.0).ends_s(160, 2.0)
        == 350
    )
    assert RecordedMarket((0.0, 100.0), (True, True), (1.0, 2.0), 200.0).ends_s(0, 2.0) is None


def test_history_by_hand() -> None:
    # 0-100 up, 100-150 down, 150-300 up (over the seam), 300-350 down, 350-375 up.
    seen = RECORDING.history(375)
    assert seen.up_ratio == pytest.approx((100 + 150 + 25) / 375)
    assert seen.spell_s == 25
    assert seen.mean_up_s == pytest.approx((100 + 150 + 25) / 3)
    assert RECORDING.history(240).spell_s == 90
    assert RECORDING.history(60).spell_s == 60
    assert RECORDING.history(0).up_ratio == 1.0


@given(
    lengths=st.lists(st.integers(1, 40_000), min_size=1, max_size=12),
    first=st.booleans(),
    share=st.floats(0.0, 3.0),
)
def test_history_agrees_with_looking_at_every_spell(lengths: list[int], first: bool, share: float) -> None:
    times = [float(sum(lengths[:row])) for row in range(len(lengths))]
    up = tuple(first ^ bool(row % 2) for row in range(len(lengths)))
    round_s = float(sum(lengths))
    recording = RecordedMarket(tuple(times), up, (1.0,) * len(up), round_s)
    now = share * round_s
    # Unrolled: (begin, end, up) of all rows from the start, cut at now.
    rows = [
        (turn * round_s + begin, min(now, turn * round_s + begin + length), state)
        for turn in range(4)
        for begin, length, state in zip(times, lengths, up, strict=True)
        if turn * round_s + begin < now
    ]
    up_s = sum(end - max(begin, now - DAY_S) for begin, end, state in rows if state and end > now - DAY_S)
    seen = recording.history(now)
    if now > 0:
        assert seen.up_ratio == pytest.approx(up_s / min(now, DAY_S), abs=1e-6)
    week = [(max(begin, now - 7 * DAY_S), end, state) for begin, end, state in rows if end > now - 7 * DAY_S]
    spells = sum(state and (row == 0 or not week[row - 1][2]) for row, (_, _, state) in enumerate(week))
    total = sum(end - begin for begin, end, state in week if state)
    assert seen.mean_up_s == pytest.approx(total / spells if spells else 0.0, rel=1e-6, abs=1e-6)
    end = recording.ends_s(now)
    if end is not None:
        assert end > now
        assert not recording.available(end + 1e-6)
        assert not any(begin > now and end > begin and not state for begin, _, state in rows)
    else:
        assert all(up)


def test_a_list_of_ticks_goes_on_for_one_more(tmp_path: Path) -> None:
    rows = "time_s,available,price_usd_hour\n0,0,0.5\n100,1,0.6\n200,0,0.7\n"
    recording = load_recording(write_trace(tmp_path / "t", rows, tick_s=100, polarity="unavailable"), None)
    assert recording == RecordedMarket((0.0, 100.0, 200.0), (True, False, True), (0.5, 0.6, 0.7), 300.0)


def test_a_list_of_changes_ends_at_its_last_row(tmp_path: Path) -> None:
    folder = write_trace(tmp_path / "t", "time_s,available\n0,1\n60,0\n90,1\n", tick_s=None)
    recording = load_recording(folder, 0.25)
    assert recording == RecordedMarket((0.0, 60.0), (True, False), (0.25, 0.25), 90.0)


def test_prices_must_come_from_somewhere(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="price_usd_hour"):
        load_recording(write_trace(tmp_path / "t", "time_s,available\n0,1\n"), None)


@pytest.mark.parametrize("zone", ZONES)
def test_recordings_that_ship_are_the_bundles(zone: str) -> None:
    theirs = load_bundle().offer_trace("aws", zone[:-1], zone, "p3.2xlarge", "spot")
    ours = load_recording(FOLDER / zone, None)
    assert ours.length_s == 3937790
    for at in range(0, 3937790, 6007):
        assert ours.available(at) == bool(theirs.availability.at(at))
        assert ours.price_usd_hour(at) == pytest.approx(theirs.price_usd_hour.at(at), abs=5e-5)


def test_the_example_that_ships_can_be_used() -> None:
    config = LocalConfig.load(FOLDER / "offers.yaml")
    assert len(ZONES) == 3
    assert set(config.recordings()) == {
        *(f"local/{zone}/p3.2xlarge/spot" for zone in ZONES),
        "local/us-east-2/p3.2xlarge/on_demand",
        "local/local/laptop/owned",
    }
    assert not (FOLDER / "state").exists()
