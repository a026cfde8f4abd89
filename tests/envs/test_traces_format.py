"""The trace format and its importers: round trips, and one clear line for every kind of bad input."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spotweave.envs.market_data import market_data
from spotweave.envs.simulation.market.config import MarketConfig
from spotweave.envs.simulation.series import Polarity, StepSeries
from spotweave.envs.simulation.world import WorldError
from spotweave.envs.traces.command import main
from spotweave.envs.traces.format import load_jobs, load_trace, load_traces
from spotweave.envs.traces.importers import region_of
from spotweave.envs.traces.storage import TraceError
from tests.envs.traces_cases import entry, imported, importing, refusal, series_of, write, write_trace


def test_a_trace_by_hand(tmp_path: Path) -> None:
    trace = load_trace(write_trace(tmp_path / "t"))
    assert trace.meta.polarity is Polarity.AVAILABLE
    assert trace.meta.start_utc.isoformat() == "2023-02-15T22:08:16+00:00"
    offer = trace.offer_trace()
    # Change-compressed: nothing happens at 195 s.
    assert offer.availability.times_s.tolist() == [0, 390]
    assert offer.availability.values.tolist() == [1.0, 0.0]
    assert offer.price_usd_hour.values.tolist() == [0.9, 0.95]
    assert not offer.synthetic_availability


def test_unavailable_polarity_flips(tmp_path: Path) -> None:
    trace = load_trace(write_trace(tmp_path / "t", polarity="unavailable"))
    assert series_of(trace)[1] == [False, False, True]


def test_the_example_of_the_docs_loads(tmp_path: Path) -> None:
    text = (Path(__file__).parents[2] / "docs" / "traces.md").read_text()
    write(tmp_path / "trace.json", text.split("```json\n")[1].split("```")[0])
    write(tmp_path / "series.csv", text.split("`series.csv`:\n\n```\n")[1].split("```")[0])
    assert load_trace(tmp_path).times_s.tolist() == [0, 195, 390]


BAD_SERIES = [
    ("", "is empty"),
    ("time_s,available,price_usd_hour\n", "is empty: it has a header and no row"),
    ("time_s,available\n0,1\n390,1\n3990,0\n", "line 4: a gap of 3600 s since line 3, more than 390 s"),
    ("time_s,available\n0,1\n390,1\n195,0\n", "line 4: time 195 s after 390 s: sort the rows by time"),
    ("time_s,available\n0,1\n195,1\n195,0\n", "line 4: time 195 s stands twice (also line 3): keep one"),
    ("time_s,price_usd_hour\n0,1\n195,-0.5\n", "line 3: price -0.5: expected USD per hour, a number >= 0"),
    ("time_s,price_usd_hour\n0,nan\n", "line 2: price nan: expected USD per hour"),
    ("time_s,price_usd_hour\n0,inf\n", "line 2: price inf: expected USD per hour"),
    ("time_s,price_usd_hour\n0,cheap\n", "line 2: price_usd_hour 'cheap' is not a number"),
    ("time_s,available\n0,2\n", "line 2: available '2': expected 0 or 1"),
    ("time_s,available\n0.5,1\n", "line 2: time_s 0.5: expected whole seconds"),
    ("time_s,available\nnan,1\n", "line 2: time_s nan: expected whole seconds"),
    ("time_s,available\ninf,1\n", "line 2: time_s inf: expected whole seconds"),
    ("time_s,available\n0\n", "line 2: 1 values for 2 columns"),
    ("time_s\n0\n", "has times only: add a column available, price_usd_hour, or both"),
    ("time_s,avail\n0,1\n", "has an unknown column 'avail'"),
    ("time_s,available,available\n0,1,0\n", "has twice the column 'available'"),
    ("available\n1\n", "has no column 'time_s'"),
]
BAD_META: list[tuple[dict[str, Any], str]] = [
    ({"polarity": "REMOVED"}, "polarity is missing: say 'available' if 1 means"),
    ({"polarity": "up"}, "polarity: input should be 'available' or 'unavailable', got 'up'"),
    ({"format": "other"}, 'is no market trace: expected "format": "spotweave-market-trace"'),
    ({"format_version": 2}, "this release reads format_version 1"),
    ({"zone": "REMOVED"}, "zone: field required"),
    ({"market": "auction"}, "market: input should be 'spot' or 'on_demand', got 'auction'"),
    ({"tick_s": -195}, "tick_s: input should be greater than 0, got -195"),
    ({"max_gap_s": True}, "max_gap_s: input should be a valid integer, got True"),
    ({"start_utc": "yesterday"}, "start_utc: input should be a valid datetime"),
    ({"poalrity": "available"}, "poalrity: unknown key"),
]


@pytest.mark.parametrize(
    ("changes", "file", "line"),
    [({"series": series}, "series.csv", line) for series, line in BAD_SERIES]
    + [(changes, "trace.json", line) for changes, line in BAD_META],
)
def test_a_bad_trace_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], changes: dict[str, Any], file: str, line: str
) -> None:
    error = refusal(capsys, "show", write_trace(tmp_path / "t", **changes))
    assert file in error
    assert line in error


def test_gaps_can_be_allowed(tmp_path: Path) -> None:
    series = "time_s,available\n0,1\n3600,0\n"
    assert load_trace(write_trace(tmp_path / "a", series, max_gap_s=3600)).meta.max_gap_s == 3600
    # Rows that are changes hold until the next: no gap can be told.
    load_trace(write_trace(tmp_path / "b", series, tick_s=None))
    with pytest.raises(TraceError, match="a gap of 3600 s since line 2, more than 3599 s"):
        load_trace(write_trace(tmp_path / "c", series, tick_s=None, max_gap_s=3599))


def test_files_that_cannot_be_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "holds no trace" in refusal(capsys, "show", tmp_path)
    folder = write_trace(tmp_path / "t")
    write(folder / "trace.json", "{")
    assert "is not JSON: line 1" in refusal(capsys, "show", folder)
    write_trace(folder)
    for content, line in (
        (b"a\xff", "is not UTF-8 text (byte 1)"),
        (b"\x1f\x8b\xff", "series.csv cannot be read: Compressed file ended"),
    ):
        (folder / "series.csv").write_bytes(content)
        assert line in refusal(capsys, "show", folder)
    (folder / "series.csv").unlink()
    assert "series.csv cannot be read: No such file or directory" in refusal(capsys, "show", folder)
    assert issubclass(TraceError, WorldError)


def test_missing_columns_are_asked_for(tmp_path: Path) -> None:
    price, away = (StepSeries(np.array([0]), np.array([value])) for value in (1.0, 0.0))
    availability_only = load_trace(write_trace(tmp_path / "a", "time_s,available\n0,1\n"))
    lacking = r"us-east-1a p3\.2xlarge spot has no prices: add a column price_usd_hour"
    with pytest.raises(TraceError, match=lacking):
        availability_only.offer_trace()
    assert availability_only.offer_trace(price_usd_hour=price).availability.at(0) == 1.0
    price_only = load_trace(write_trace(tmp_path / "b", "time_s,price_usd_hour\n0,2\n", polarity=None))
    with pytest.raises(TraceError, match="has no availability: add a column available and a polarity"):
        price_only.offer_trace()
    offer = price_only.offer_trace(availability=away)
    assert (offer.price_usd_hour.at(0), offer.synthetic_availability) == (2.0, True)


def test_a_folder_of_traces_has_one_clock(tmp_path: Path) -> None:
    write_trace(tmp_path / "a")
    write_trace(tmp_path / "b", zone="us-east-1b", start_utc="2023-02-15T22:00:00Z")
    first, second = load_traces(tmp_path)
    assert first.meta.start_utc == second.meta.start_utc
    assert (first.times_s[0], second.times_s[0]) == (8 * 60 + 16, 0)
    write_trace(tmp_path / "c")
    with pytest.raises(TraceError, match=r"c and .*a are both of aws us-east-1 us-east-1a .*: keep one"):
        load_traces(tmp_path)


def test_csv_import(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = (
        "time,zone,available,price\n2026-05-01T00:00:00Z,us-east-1a,0,1.0\n"
        "2026-05-01T00:00:00Z,us-central1-a,1,2.0\n2026-05-01T02:10:00+02:00,us-east-1a,1,1.5\n"
    )
    options = "--on-demand none --polarity unavailable"
    central, east = imported("csv", write(tmp_path / "m.csv", rows), options=options)
    assert (central.meta.zone, central.meta.region) == ("us-central1-a", "us-central1")
    assert (east.meta.zone, east.meta.region) == ("us-east-1a", "us-east-1")
    assert series_of(east) == ([0, 600], [True, False], [1.0, 1.5])
    capsys.readouterr()
    assert main(["show", str(tmp_path / "market")]) == 0
    table = capsys.readouterr().out.splitlines()
    assert len(table) == 3
    assert "1.000  1.0000-1.5000" in table[2]


@settings(max_examples=25)
@given(
    rows=st.lists(
        st.tuples(st.integers(1, 5000), st.booleans(), st.floats(0, 100, allow_nan=False)),
        min_size=1,
        max_size=20,
    ),
    polarity=st.sampled_from(list(Polarity)),
)
def test_what_was_imported_is_what_is_read(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[int, bool, float]], polarity: Polarity
) -> None:
    gaps_s, states, prices = map(list, zip(*rows, strict=True))
    times_s = np.cumsum(gaps_s)
    lines = ["time,zone,available,price"] + [
        f"{time_s},z,{int(state == (polarity is Polarity.AVAILABLE))},{price!r}"
        for time_s, state, price in zip(times_s, states, prices, strict=True)
    ]
    source = write(tmp_path_factory.mktemp("import") / "m.csv", "\n".join(lines))
    (trace,) = imported("csv", source, options=f"--polarity {polarity.value} --on-demand none")
    assert series_of(trace) == ((times_s - times_s[0]).tolist(), states, prices)


def probes(data: Any, gap_s: Any = 600) -> dict[str, Any]:
    """A file as SkyPilot's authors publish them."""
    return {"metadata": {"gap_seconds": gap_s}, "data": data}


def test_skypilot_import_where_one_means_preempted(tmp_path: Path) -> None:
    source = write(tmp_path / "us-west-2a.json", probes([0, 1, 1, 0]))
    options = "--polarity unavailable --on-demand none --start-utc 2026-05-01"
    (trace,) = imported("skypilot", source, options=options)
    assert series_of(trace)[:2] == ([0, 600, 1200, 1800], [True, False, False, True])
    assert (trace.meta.tick_s, trace.meta.zone, trace.meta.region) == (600, "us-west-2a", "us-west-2")


def prices(*entries: Any) -> dict[str, Any]:
    return {"SpotPriceHistory": entries}


def at_1a(time: str, price: Any, **changes: Any) -> dict[str, Any]:
    return entry("us-east-1a", time, price, **changes)


def test_ec2_price_history_import(tmp_path: Path) -> None:
    history = prices(
        at_1a("2026-05-01T01:00:00+00:00", "0.5"),
        entry("us-east-1b", "2026-05-01T00:30:00.000Z", "0.4"),
        at_1a("2026-05-01T00:00:00Z", "0.45"),
        at_1a("2026-05-01T00:00:00Z", "0.45"),
    )
    source = write(tmp_path / "h.json", history)
    first, second = imported("ec2-price-history", source, options="--on-demand none")
    assert first.meta.offer == ("aws", "us-east-1", "us-east-1a", "g5.xlarge", "spot")
    assert series_of(first) == ([0, 3600], None, [0.45, 0.5])
    assert second.times_s.tolist() == [1800]


SWF = """; Version: 2.2
  1  100  5  60  4 -1 -1  8 -1 -1 1 1 1 1 1 1 -1 -1
  2  130  5  90 -1 -1 -1 16 -1 -1 1 1 1 1 1 1 -1 -1
  3  150 -1  -1  4 -1 -1  4 -1 -1 5 1 1 1 1 1 -1 -1
  4  190  0  10  1 -1 -1  1 -1 -1 1 1 1 1 1 1 -1 -1
"""


def test_swf_import(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(importing("swf", write(tmp_path / "log.swf", SWF))) == 0
    jobs = load_jobs(tmp_path / "market")
    assert jobs.arrival_s.tolist() == [0, 30, 90]
    assert jobs.duration_s.tolist() == [60, 90, 10]
    assert jobs.executors.tolist() == [4, 16, 1]
    capsys.readouterr()
    assert main(["show", str(tmp_path / "market")]) == 0
    line = "3 jobs over 0.0 days from log.swf; median duration 60 s, executors 1-16"
    assert line in capsys.readouterr().out


UP = "--polarity unavailable"
WINDOWS = at_1a("2026-05-02", "1", ProductDescription="Windows")
BAD_FILES: dict[str, list[tuple[Any, str, str]]] = {
    "csv": [
        ("time,zone,available\n0,z,1\n", "", "--polarity: polarity is missing"),
        ("time,zone,available\n0,z,1\n", "--polarity yes", "polarity 'yes' is unknown"),
        ("time,zone\n0,z\n", "", "has times and zones only"),
        ("time,zone,price\n0,z,1\nsoon,z,1\n", "", "line 3: time 'soon' is not a time"),
        ("time,zone,price\nnan,z,1\n", "", "line 2: time 'nan' is not finite"),
        ("time,zone,price\n1e300,z,1\n", "", "is no Unix time: give --start-utc"),
        ("time,zone,price\n0,,1\n", "", "line 2: the zone is missing"),
        ("time,zone,price\n0,z,1\n0,y,1\n0,z,2\n", "", "line 4: time 0 s stands twice (also line 2)"),
        ("time,zone,price\n9,z,1\n0,z,1\n", "", "line 3: time 0 s after 9 s: sort the rows by time"),
        ("time,zone,price\n0,z,-1\n", "", "line 2: price -1.0: expected USD per hour"),
        ("time,zone,price\n0,z,1\n99,z,1\n", "--tick-s 40", "line 3: a gap of 99 s since line 2"),
        ("", "", "is empty"),
    ],
    "skypilot": [
        (probes([0, 1]), "--start-utc 2026-05-01", "polarity is missing"),
        (probes([0, 1]), UP, "does not say when it starts: give --start-utc"),
        (probes([0, 2]), UP, "data.1: input should be 0 or 1, got 2"),
        (probes([]), UP, "data: list should have at least 1 item"),
        (probes([0], 0), UP, "metadata.gap_seconds: input should be greater than 0, got 0"),
    ],
    "ec2-price-history": [
        (prices(), "", "SpotPriceHistory: list should have at least 1 item"),
        (prices(at_1a("today", "1")), "", "0.Timestamp: input should be a valid datetime"),
        (prices(at_1a("2026-05-01", "-1")), "", "0.SpotPrice: input should be greater than or equal to 0"),
        (prices(at_1a("2026-05-01", "1"), at_1a("2026-05-01", "2")), "", "[1]: a second price 2.0"),
        (prices(at_1a("2026-05-01", "1"), WINDOWS), "", "mixes Linux/UNIX, Windows: ask for one with --prod"),
    ],
    "swf": [
        ("; nothing\n", "", "holds no job that ran"),
        ("1 2 3\n", "", "line 1: 3 fields: an SWF line has 18"),
        ("1 x 5 60 4 -1 -1 8\n", "", "line 1: field 2 'x' is not a number"),
        ("1 nan 5 60 4 -1 -1 8\n", "", "line 1: a field is not finite"),
        ("1 100 5 60 4 -1 -1 8\n2 90 5 60 4 -1 -1 8\n", "", "line 2: submitted before the job above"),
    ],
}


@pytest.mark.parametrize(
    ("source_format", "content", "options", "line"),
    [(name, *row) for name, rows in BAD_FILES.items() for row in rows],
    ids=[f"{name}: {row[2]}" for name, rows in BAD_FILES.items() for row in rows],
)
def test_a_bad_file_is_one_line_and_leaves_nothing(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    source_format: str,
    content: Any,
    options: str,
    line: str,
) -> None:
    command = importing(source_format, write(tmp_path / "z", content), options=options)
    assert line in refusal(capsys, *command)
    assert [path.name for path in tmp_path.iterdir()] == ["z"]


@pytest.mark.parametrize(
    ("rows", "line"),
    [
        ("0,0,1\n", "line 2: duration_s 0: expected a whole number >= 1"),
        ("0,5,nan\n", "line 2: executors nan: expected a whole number >= 1"),
        ("5,5,1\n4,5,1\n", "line 3: arrival after a later one: sort the rows by arrival_s"),
        ("", "is empty"),
    ],
)
def test_bad_job_traces_are_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], rows: str, line: str
) -> None:
    write(tmp_path / "trace.json", {"format": "spotweave-job-trace", "format_version": 1})
    write(tmp_path / "jobs.csv", f"arrival_s,duration_s,executors\n{rows}")
    assert line in refusal(capsys, "show", tmp_path)


def test_nothing_is_overwritten_and_nothing_half_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["import", str(write(tmp_path / "log.swf", SWF)), "--format", "swf", "--out"]
    full = tmp_path / "full"
    full.mkdir()
    write(full / "mine", "kept")
    assert "exists already: choose another --out or remove it" in refusal(capsys, *command, full)
    assert [path.name for path in full.iterdir()] == ["mine"]
    # A file where a folder has to be stands for every reason that writing can fail.
    assert "cannot be written: " in refusal(capsys, *command, tmp_path / "log.swf" / "out")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["full", "log.swf"]


@pytest.mark.parametrize("command", ["build", "fit"])
def test_build_and_fit_name_a_missing_source(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    error = refusal(capsys, command, "--source", tmp_path, "--out", tmp_path / "out")
    assert "has no folder" in error


def test_regions() -> None:
    zones = ("us-east-1a", "us-gov-west-1b", "us-central1-f", "rack-7")
    assert [region_of(zone) for zone in zones] == ["us-east-1", "us-gov-west-1", "us-central1", "rack-7"]


def test_a_mistyped_flag_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert "unrecognized arguments: --al" in refusal(capsys, "show", "--al")


def test_show_lists_the_bundle(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show"]) == 0
    table = capsys.readouterr().out
    row = next(line for line in table.splitlines() if "us-west-2b" in line)
    assert row.split() == ["aws", "us-west-2b", "p3.2xlarge", "spot", "90", "45.6", "0.905", "0.9180-1.0339"]


def test_splits_end_with_the_zone_that_was_watched_for_the_shortest_time(tmp_path: Path) -> None:
    files = [
        write(tmp_path / f"{zone}.json", probes([0, 1] * (days * 12), 3600))
        for zone, days in (("us-west-2a", 16), ("us-east-2b", 11))
    ]
    options = "--polarity available --start-utc 2023-08-27T00:00:00 --instance-type p3.2xlarge --price 32%"
    imported("skypilot", *files, options=options)
    splits = market_data(MarketConfig(traces=str(tmp_path / "market"))).splits
    assert splits["train"][0] == 0
    assert splits["test"][1] == (11 * 24 - 1) * 3600
