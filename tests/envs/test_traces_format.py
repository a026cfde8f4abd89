"""The trace format and its importers: round trips, and one clear line for every kind of bad input."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envs.market_data import market_data
from envs.simulation.market.config import MarketConfig
from envs.simulation.series import Polarity, StepSeries
from envs.simulation.world import WorldError
from envs.traces.__main__ import main
from envs.traces.importers import region_of
from envs.traces.jobs import load_jobs
from envs.traces.market import load_trace, load_traces
from envs.traces.storage import TraceError

META: dict[str, Any] = {
    "format": "spotweave-market-trace",
    "format_version": 1,
    "provider": "aws",
    "region": "us-east-1",
    "zone": "us-east-1a",
    "instance_type": "p3.2xlarge",
    "market": "spot",
    "start_utc": "2023-02-15T22:08:16Z",
    "source": "a test",
    "licence": "Apache-2.0",
    "polarity": "available",
    "tick_s": 195,
}
SERIES = "time_s,available,price_usd_hour\n0,1,0.9\n195,1,0.9\n390,0,0.95\n"


def write(folder: Path, series: str = SERIES, **changes: Any) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    meta = {key: value for key, value in {**META, **changes}.items() if value != "REMOVED"}
    (folder / "trace.json").write_text(json.dumps(meta))
    (folder / "series.csv").write_text(series)
    return folder


def run(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> str:
    """The one line of a command that has to fail."""
    code = main([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    assert code == 1
    assert captured.out == ""
    assert captured.err.startswith("error: ")
    assert captured.err.count("\n") == 1
    return captured.err


def test_a_trace_by_hand(tmp_path: Path) -> None:
    trace = load_trace(write(tmp_path / "t"))
    assert trace.meta.polarity is Polarity.AVAILABLE
    assert trace.meta.start_utc.isoformat() == "2023-02-15T22:08:16+00:00"
    offer = trace.offer_trace()
    # Change-compressed: nothing happens at 195 s.
    assert offer.availability.times_s.tolist() == [0, 390]
    assert offer.availability.values.tolist() == [1.0, 0.0]
    assert offer.price_usd_hour.values.tolist() == [0.9, 0.95]
    assert not offer.synthetic_availability


def test_unavailable_polarity_flips(tmp_path: Path) -> None:
    trace = load_trace(write(tmp_path / "t", polarity="unavailable"))
    assert trace.available is not None
    assert trace.available.tolist() == [False, False, True]


def test_the_example_of_the_docs_loads(tmp_path: Path) -> None:
    text = (Path(__file__).parents[2] / "docs" / "traces.md").read_text()
    (tmp_path / "trace.json").write_text(text.split("```json\n")[1].split("```")[0])
    (tmp_path / "series.csv").write_text(text.split("`series.csv`:\n\n```\n")[1].split("```")[0])
    assert load_trace(tmp_path).times_s.tolist() == [0, 195, 390]


@pytest.mark.parametrize(
    ("series", "line"),
    [
        ("", "is empty"),
        ("time_s,available,price_usd_hour\n", "is empty: it has a header and no row"),
        ("time_s,available\n0,1\n390,1\n3990,0\n", "line 4: a gap of 3600 s since line 3, more than 390 s"),
        ("time_s,available\n0,1\n390,1\n195,0\n", "line 4: time 195 s after 390 s: sort the rows by time"),
        ("time_s,available\n0,1\n195,1\n195,0\n", "line 4: time 195 s stands twice (also line 3): keep one"),
        (
            "time_s,price_usd_hour\n0,0.9\n195,-0.5\n",
            "line 3: price -0.5: expected USD per hour, a number >= 0",
        ),
        ("time_s,price_usd_hour\n0,nan\n", "line 2: price nan: expected USD per hour"),
        ("time_s,price_usd_hour\n0,inf\n", "line 2: price inf: expected USD per hour"),
        ("time_s,price_usd_hour\n0,\n", "line 2: price_usd_hour '' is not a number"),
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
    ],
)
def test_bad_series_are_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], series: str, line: str
) -> None:
    error = run(capsys, "show", write(tmp_path / "t", series))
    assert "series.csv" in error
    assert line in error


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"polarity": "REMOVED"}, "polarity is missing: say 'available' if 1 means"),
        ({"polarity": "up"}, "polarity 'up' is unknown: say 'available' if 1 means"),
        ({"format": "other"}, 'is no market trace: expected "format": "spotweave-market-trace"'),
        ({"format_version": 2}, "this release reads format_version 1"),
        ({"zone": "REMOVED"}, "zone must be a text: got None"),
        ({"market": "auction"}, "market 'auction': expected spot or on_demand"),
        ({"tick_s": -195}, "tick_s must be a positive whole number of seconds or null: got -195"),
        ({"max_gap_s": True}, "max_gap_s must be a positive whole number of seconds or null: got True"),
        ({"start_utc": "yesterday"}, "start_utc 'yesterday' is not a time: expected ISO 8601"),
        ({"start_utc": "REMOVED"}, "start_utc None is not a time"),
        ({"synthetic": "no"}, "synthetic must be true or false: got 'no'"),
        ({"poalrity": "available"}, "unknown key 'poalrity': expected provider"),
    ],
)
def test_bad_metadata_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], changes: dict[str, Any], line: str
) -> None:
    error = run(capsys, "show", write(tmp_path / "t", **changes))
    assert "trace.json" in error
    assert line in error


def test_gaps_can_be_allowed(tmp_path: Path) -> None:
    series = "time_s,available\n0,1\n3600,0\n"
    assert load_trace(write(tmp_path / "a", series, max_gap_s=3600)).meta.max_gap_s == 3600
    # Rows that are changes hold until the next: no gap can be told.
    load_trace(write(tmp_path / "b", series, tick_s=None))
    with pytest.raises(TraceError, match="a gap of 3600 s since line 2, more than 3599 s"):
        load_trace(write(tmp_path / "c", series, tick_s=None, max_gap_s=3599))


def test_files_that_cannot_be_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "holds no trace" in run(capsys, "show", tmp_path)
    folder = write(tmp_path / "t")
    (folder / "trace.json").write_text("{")
    assert "is not JSON: line 1" in run(capsys, "show", folder)
    write(folder)
    (folder / "series.csv").write_bytes(b"a\xff")
    assert "is not UTF-8 text (byte 1)" in run(capsys, "show", folder)
    (folder / "series.csv").write_bytes(b"\x1f\x8b\xff")
    assert "series.csv cannot be read: Compressed file ended" in run(capsys, "show", folder)
    (folder / "series.csv").unlink()
    assert "series.csv cannot be read: No such file or directory" in run(capsys, "show", folder)
    assert issubclass(TraceError, WorldError)


def test_missing_columns_are_asked_for(tmp_path: Path) -> None:
    price = StepSeries(np.array([0]), np.array([1.0]))
    up = StepSeries(np.array([0]), np.array([0.0]))
    availability_only = load_trace(write(tmp_path / "a", "time_s,available\n0,1\n"))
    with pytest.raises(
        TraceError, match=r"us-east-1a p3\.2xlarge spot has no prices: add a column price_usd_hour"
    ):
        availability_only.offer_trace()
    assert availability_only.offer_trace(price_usd_hour=price).availability.at(0) == 1.0
    price_only = load_trace(write(tmp_path / "b", "time_s,price_usd_hour\n0,2\n", polarity=None))
    with pytest.raises(TraceError, match="has no availability: add a column available and a polarity"):
        price_only.offer_trace()
    offer = price_only.offer_trace(availability=up)
    assert (offer.price_usd_hour.at(0), offer.synthetic_availability) == (2.0, True)


def test_a_folder_of_traces_has_one_clock(tmp_path: Path) -> None:
    write(tmp_path / "a")
    write(tmp_path / "b", zone="us-east-1b", start_utc="2023-02-15T22:00:00Z")
    first, second = load_traces(tmp_path)
    assert first.meta.start_utc == second.meta.start_utc
    assert (first.times_s[0], second.times_s[0]) == (8 * 60 + 16, 0)
    write(tmp_path / "c")
    with pytest.raises(TraceError, match=r"c and .*a are both of aws us-east-1 us-east-1a .*: keep one"):
        load_traces(tmp_path)


def test_csv_import(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = tmp_path / "m.csv"
    source.write_text(
        "time,zone,available,price\n"
        "2026-05-01T00:00:00Z,us-east-1a,0,1.0\n"
        "2026-05-01T00:00:00Z,us-central1-a,1,2.0\n"
        "2026-05-01T02:10:00+02:00,us-east-1a,1,1.5\n"
    )
    out = tmp_path / "out"
    command = ["import", str(source), "--format", "csv", "--out", str(out), "--on-demand", "none"]
    assert main([*command, "--polarity", "unavailable"]) == 0
    central, east = load_traces(out)
    assert (central.meta.zone, central.meta.region) == ("us-central1-a", "us-central1")
    assert (east.meta.zone, east.meta.region) == ("us-east-1a", "us-east-1")
    assert east.times_s.tolist() == [0, 600]
    assert east.available is not None
    assert east.available.tolist() == [True, False]
    assert east.price_usd_hour is not None
    assert east.price_usd_hour.tolist() == [1.0, 1.5]
    capsys.readouterr()
    assert main(["show", str(out)]) == 0
    table = capsys.readouterr().out.splitlines()
    assert len(table) == 3
    assert "1.000  1.0000-1.5000" in table[2]


@settings(deadline=None, max_examples=25)
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
    folder = tmp_path_factory.mktemp("import")
    times_s = np.cumsum([gap_s for gap_s, _, _ in rows])
    up = [state for _, state, _ in rows]
    lines = ["time,zone,available,price"] + [
        f"{time_s},z,{int(state == (polarity is Polarity.AVAILABLE))},{price!r}"
        for time_s, (_, state, price) in zip(times_s, rows, strict=True)
    ]
    (folder / "m.csv").write_text("\n".join(lines))
    command = ["import", str(folder / "m.csv"), "--format", "csv", "--out", str(folder / "out")]
    assert main([*command, "--polarity", polarity.value, "--on-demand", "none"]) == 0
    trace = load_trace(folder / "out")
    assert trace.times_s.tolist() == (times_s - times_s[0]).tolist()
    assert trace.available is not None
    assert trace.available.tolist() == up
    assert trace.price_usd_hour is not None
    assert trace.price_usd_hour.tolist() == [price for _, _, price in rows]


@pytest.mark.parametrize(
    ("text", "arguments", "line"),
    [
        ("time,zone,available\n0,z,1\n", [], "--polarity: polarity is missing"),
        ("time,zone,available\n0,z,1\n", ["--polarity", "yes"], "polarity 'yes' is unknown"),
        ("time,zone\n0,z\n", [], "has times and zones only"),
        ("time,zone,price\n0,z,1\nsoon,z,1\n", [], "line 3: time 'soon' is not a time"),
        ("time,zone,price\nnan,z,1\n", [], "line 2: time 'nan' is not finite"),
        ("time,zone,price\n1e300,z,1\n", [], "is no Unix time: give --start-utc"),
        ("time,zone,price\n0,,1\n", [], "line 2: the zone is missing"),
        ("time,zone,price\n0,z,1\n0,y,1\n0,z,2\n", [], "line 4: time 0 s stands twice (also line 2)"),
        ("time,zone,price\n9,z,1\n0,z,1\n", [], "line 3: time 0 s after 9 s: sort the rows by time"),
        ("time,zone,price\n0,z,-1\n", [], "line 2: price -1.0: expected USD per hour"),
        ("time,zone,price\n0,z,1\n99,z,1\n", ["--tick-s", "40"], "line 3: a gap of 99 s since line 2"),
        ("", [], "is empty"),
    ],
)
def test_bad_csv_is_one_line_and_leaves_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, arguments: list[str], line: str
) -> None:
    (tmp_path / "m.csv").write_text(text)
    command: list[str | Path] = [
        "import",
        tmp_path / "m.csv",
        "--format",
        "csv",
        "--out",
        tmp_path / "out",
        *arguments,
    ]
    assert line in run(capsys, *command)
    assert [path.name for path in tmp_path.iterdir()] == ["m.csv"]


def skypilot(path: Path, data: Any, gap_s: Any = 600) -> Path:
    path.write_text(json.dumps({"metadata": {"gap_seconds": gap_s}, "data": data}))
    return path


def test_skypilot_import_where_one_means_preempted(tmp_path: Path) -> None:
    source = skypilot(tmp_path / "us-west-2a.json", [0, 1, 1, 0])
    command = ["import", str(source), "--format", "skypilot", "--out", str(tmp_path / "out")]
    command += ["--polarity", "unavailable", "--on-demand", "none"]
    assert main([*command, "--start-utc", "2026-05-01"]) == 0
    trace = load_trace(tmp_path / "out")
    assert trace.available is not None
    assert trace.available.tolist() == [True, False, False, True]
    assert trace.times_s.tolist() == [0, 600, 1200, 1800]
    assert (trace.meta.tick_s, trace.meta.zone, trace.meta.region) == (600, "us-west-2a", "us-west-2")


@pytest.mark.parametrize(
    ("data", "gap_s", "arguments", "line"),
    [
        ([0, 1], 600, ["--start-utc", "2026-05-01"], "polarity is missing"),
        ([0, 1], 600, ["--polarity", "unavailable"], "does not say when it starts: give --start-utc"),
        ([0, 2], 600, ["--polarity", "unavailable"], "data[1] is 2: expected 0 or 1"),
        ([], 600, ["--polarity", "unavailable"], "data must be a list of 0 and 1 that is not empty"),
        (
            [0],
            0,
            ["--polarity", "unavailable"],
            "metadata.gap_seconds must be a positive whole number: got 0",
        ),
        ([0], None, ["--polarity", "unavailable"], "metadata.gap_seconds must be a positive"),
    ],
)
def test_bad_skypilot_json_is_one_line(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    data: Any,
    gap_s: Any,
    arguments: list[str],
    line: str,
) -> None:
    source = skypilot(tmp_path / "z.json", data, gap_s)
    assert line in run(
        capsys, "import", source, "--format", "skypilot", "--out", tmp_path / "out", *arguments
    )


def entry(time: str, price: Any, zone: str = "us-east-1a", **changes: Any) -> dict[str, Any]:
    return {
        "AvailabilityZone": zone,
        "InstanceType": "g5.xlarge",
        "ProductDescription": "Linux/UNIX",
        "SpotPrice": price,
        "Timestamp": time,
        **changes,
    }


def test_ec2_price_history_import(tmp_path: Path) -> None:
    source = tmp_path / "h.json"
    entries = [
        entry("2026-05-01T01:00:00+00:00", "0.5"),
        entry("2026-05-01T00:30:00.000Z", "0.4", zone="us-east-1b"),
        entry("2026-05-01T00:00:00Z", "0.45"),
        entry("2026-05-01T00:00:00Z", "0.45"),
    ]
    source.write_text(json.dumps({"SpotPriceHistory": entries}))
    out = tmp_path / "out"
    command = ["import", str(source), "--format", "ec2-price-history", "--out", str(out)]
    assert main([*command, "--on-demand", "none"]) == 0
    first, second = load_traces(out)
    assert first.meta.offer == ("aws", "us-east-1", "us-east-1a", "g5.xlarge", "spot")
    assert first.available is None
    assert first.price_usd_hour is not None
    assert first.times_s.tolist() == [0, 3600]
    assert first.price_usd_hour.tolist() == [0.45, 0.5]
    assert second.times_s.tolist() == [1800]


@pytest.mark.parametrize(
    ("entries", "line"),
    [
        ([], "SpotPriceHistory must be a list that is not empty"),
        ([{"InstanceType": "g5.xlarge"}], "SpotPriceHistory[0] has no AvailabilityZone"),
        ([entry("today", "1")], "SpotPriceHistory[0]: Timestamp 'today' is not a time"),
        ([entry("2026-05-01", "-1")], "SpotPriceHistory[0]: SpotPrice -1.0: expected USD per hour"),
        ([entry("2026-05-01", "nan")], "SpotPriceHistory[0]: SpotPrice nan: expected USD per hour"),
        ([entry("2026-05-01", None)], "SpotPriceHistory[0]: SpotPrice None is not a number"),
        ([entry("2026-05-01", "1"), entry("2026-05-01", "2")], "SpotPriceHistory[1]: a second price 2.0"),
        (
            [entry("2026-05-01", "1"), entry("2026-05-02", "1", ProductDescription="Windows")],
            "mixes Linux/UNIX, Windows: ask for one with --product-descriptions",
        ),
    ],
)
def test_bad_price_history_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], entries: list[Any], line: str
) -> None:
    source = tmp_path / "h.json"
    source.write_text(json.dumps({"SpotPriceHistory": entries}))
    assert line in run(capsys, "import", source, "--format", "ec2-price-history", "--out", tmp_path / "out")


SWF = """; Version: 2.2
  1  100  5  60  4 -1 -1  8 -1 -1 1 1 1 1 1 1 -1 -1
  2  130  5  90 -1 -1 -1 16 -1 -1 1 1 1 1 1 1 -1 -1
  3  150 -1  -1  4 -1 -1  4 -1 -1 5 1 1 1 1 1 -1 -1
  4  190  0  10  1 -1 -1  1 -1 -1 1 1 1 1 1 1 -1 -1
"""


def test_swf_import(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "log.swf").write_text(SWF)
    out = tmp_path / "out"
    assert main(["import", str(tmp_path / "log.swf"), "--format", "swf", "--out", str(out)]) == 0
    jobs = load_jobs(out)
    assert jobs.arrival_s.tolist() == [0, 30, 90]
    assert jobs.duration_s.tolist() == [60, 90, 10]
    assert jobs.executors.tolist() == [4, 16, 1]
    capsys.readouterr()
    assert main(["show", str(out)]) == 0
    assert (
        "3 jobs over 0.0 days from log.swf; median duration 60 s, executors 1-16" in capsys.readouterr().out
    )


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("; nothing\n", "holds no job that ran"),
        ("1 2 3\n", "line 1: 3 fields: an SWF line has 18"),
        ("1 x 5 60 4 -1 -1 8\n", "line 1: field 2 'x' is not a number"),
        ("1 nan 5 60 4 -1 -1 8\n", "line 1: a field is not finite"),
        ("1 100 5 60 4 -1 -1 8\n2 90 5 60 4 -1 -1 8\n", "line 2: submitted before the job above"),
    ],
)
def test_bad_swf_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, line: str
) -> None:
    (tmp_path / "log.swf").write_text(text)
    command: list[str | Path] = ["import", tmp_path / "log.swf", "--format", "swf", "--out", tmp_path / "out"]
    assert line in run(capsys, *command)


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
    (tmp_path / "trace.json").write_text(json.dumps({"format": "spotweave-job-trace", "format_version": 1}))
    (tmp_path / "jobs.csv").write_text(f"arrival_s,duration_s,executors\n{rows}")
    assert line in run(capsys, "show", tmp_path)


def test_nothing_is_overwritten_and_nothing_half_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "log.swf").write_text(SWF)
    full = tmp_path / "full"
    full.mkdir()
    (full / "mine").write_text("kept")
    command: list[str | Path] = ["import", tmp_path / "log.swf", "--format", "swf", "--out"]
    assert "exists already: choose another --out or remove it" in run(capsys, *command, full)
    assert [path.name for path in full.iterdir()] == ["mine"]
    # A file where a folder has to be stands for every reason that writing can fail.
    assert "cannot be written: " in run(capsys, *command, tmp_path / "log.swf" / "out")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["full", "log.swf"]


@pytest.mark.parametrize("command", ["build", "fit"])
def test_build_and_fit_name_a_missing_source(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    error = run(capsys, command, "--source", tmp_path, "--out", tmp_path / "out")
    assert "has no folder" in error


def test_regions() -> None:
    assert region_of("us-east-1a") == "us-east-1"
    assert region_of("us-gov-west-1b") == "us-gov-west-1"
    assert region_of("us-central1-f") == "us-central1"
    assert region_of("rack-7") == "rack-7"


def test_module_runs_and_a_mistyped_flag_is_one_line() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "envs.traces", "show", "--al"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "unrecognized arguments: --al" in done.stderr


def test_show_lists_the_bundle(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show"]) == 0
    table = capsys.readouterr().out
    row = next(line for line in table.splitlines() if "us-west-2b" in line)
    assert row.split() == ["aws", "us-west-2b", "p3.2xlarge", "spot", "90", "45.6", "0.905", "0.9180-1.0339"]


def test_splits_end_with_the_zone_that_was_watched_for_the_shortest_time(tmp_path: Path) -> None:
    for zone, days in (("us-west-2a", 16), ("us-east-2b", 11)):
        skypilot(tmp_path / f"{zone}.json", [0, 1] * (days * 12), 3600)
    files = [str(tmp_path / f"{zone}.json") for zone in ("us-west-2a", "us-east-2b")]
    options = ["--format", "skypilot", "--polarity", "available", "--start-utc", "2023-08-27T00:00:00"]
    price = ["--instance-type", "p3.2xlarge", "--price", "32%"]
    assert main(["import", *files, *options, *price, "--out", str(tmp_path / "two")]) == 0
    splits = market_data(MarketConfig(traces=str(tmp_path / "two"))).splits
    assert splits["train"][0] == 0
    assert splits["test"][1] == (11 * 24 - 1) * 3600
