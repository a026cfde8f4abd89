"""`spotweave measure fl`: it really trains, messages really travel, and the file keeps what it had."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from spotweave.envs.documents.federations import read_clouds
from spotweave.envs.simulation.federations.application import FederationError
from spotweave.envs.simulation.federations.clouds import Measurement
from spotweave.training.federated.measuring import link as listening
from spotweave.training.federated.measuring import merging
from spotweave.training.federated.measuring.dummy import Workload, digits, machine, run_rounds
from spotweave.training.federated.measuring.link import (
    MAX_MESSAGE_BYTES,
    Listener,
    MeasureError,
    Sizes,
    Times,
    measure_exchanges,
    own_peer,
)
from spotweave.training.federated.measuring.merging import (
    CommunicationResult,
    ComputeResult,
    merge,
    require_place,
    written,
)
from spotweave.training.files import WriteError
from tests.training.federated.commands import EXAMPLES, mistake, printed

measured = partial(printed, "measure", "fl")
refused = partial(mistake, "measure", "fl")
TINY = ("--samples", "64", "--width", "2", "--rounds", "2", "--repetitions", "1")
SIZES = Sizes(3_000_000, 2_000_000, 1_000_000, 1_808)
PAIR = ("us-east-1", "us-east-1")


def kept(path: Path, document: object) -> Path:
    """The file, which holds a document now."""
    path.write_text(json.dumps(document))
    return path


@pytest.fixture
def clouds(tmp_path: Path) -> Path:
    path = tmp_path / "clouds.json"
    path.write_bytes((EXAMPLES / "clouds.json").read_bytes())
    return path


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    """One region, two VM types, nothing measured."""
    types = [
        {"name": name, "region": "here", "vcpus": 2, "gpus": 0, "memory_gib": 4, "on_demand_usd_hour": price}
        for name, price in (("cheap", 0.1), ("dear", 0.2))
    ]
    document = {
        "format": "spotweave-clouds-1",
        "providers": [{"name": "own", "transfer_usd_gb": 0.0}],
        "regions": [{"name": "here", "provider": "own"}, {"name": "there", "provider": "own"}],
        "vm_types": types,
        "compute_slowdowns": {},
        "communication_slowdowns": [],
    }
    return kept(tmp_path / "bare.json", document)


@pytest.fixture
def application(tmp_path: Path) -> Path:
    document = json.loads((EXAMPLES / "app.json").read_text())
    document["clients"] = [document["clients"][0] | {"data_region": "here"}]
    document["aggregation"] = {"own": {"seconds": 0.1}}
    document["messages_gb"] = dict.fromkeys(("server_train", "client_train", "server_aggregate"), 0.001)
    document["messages_gb"]["client_test"] = 2e-6
    return kept(tmp_path / "app.json", document)


# The dummy client


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Two threads that wait for each other on busy cores make tiny kernels take seconds."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.mark.real
@pytest.mark.usefixtures("one_thread")
def test_it_learns_and_the_same_seed_learns_the_same(tmp_path: Path) -> None:
    workload = Workload(samples=1024, batch_size=16, width=8, seed=3)
    images, labels = digits(1280, np.random.default_rng(3))
    assert (images.shape, images.max()) == ((1280, 28, 28), 255)
    assert set(labels.tolist()) == set(range(10))
    np.savez(tmp_path / "digits.npz", images=images, labels=labels)
    first, again = (run_rounds(workload, 4, "cpu", tmp_path / "digits.npz") for _ in range(2))
    assert first[-1].loss < 0.5 * first[0].loss
    assert first[-1].accuracy > 0.6  # one in ten by chance
    assert [(one.loss, one.accuracy) for one in first] == [(one.loss, one.accuracy) for one in again]
    assert all(min(one.read_s, one.train_s, one.test_s) > 0 for one in first)
    assert first[0].round_s == first[0].read_s + first[0].train_s + first[0].test_s


def test_the_machine_is_named() -> None:
    named = machine("cpu")
    assert (named["device"], named["threads"]) == ("cpu", torch.get_num_threads())
    assert named["processor"]


def test_median_and_spread() -> None:
    assert Times.of([4.0, 1.0, 2.0, 3.0, 10.0]) == Times(3.0, 2.0, 4.0, 1.0, 10.0, 5)
    assert Times.of([1.0, 1.01, 1.02]).warning == ""
    assert "--repetitions" in Times.of([1.0, 1.5, 2.0]).warning


# The messages


@contextmanager
def listener(idle_s: float = 20.0) -> Iterator[tuple[Listener, list[str], list[str]]]:
    """A listener in a thread, the lines that it says, and why it ended."""
    said: list[str] = []
    ended: list[str] = []
    answering = Listener("127.0.0.1", 0, idle_s, said.append)
    thread = threading.Thread(target=lambda: ended.append(answering.serve()))
    thread.start()
    try:
        yield answering, said, ended
    finally:
        if thread.is_alive():
            # It may be ending by itself just now.
            with suppress(OSError), socket.create_connection(("127.0.0.1", answering.port)) as connection:
                connection.sendall(b"DELETE / HTTP/1.1\r\n\r\n")
        thread.join(20)
        assert not thread.is_alive()


def test_every_message_is_measured_with_a_process_of_its_own() -> None:
    with own_peer() as port:
        found = measure_exchanges("127.0.0.1", port, SIZES, 4, stop=True)
    assert [times.n for times in found.messages] == [4] * 4
    assert all(times.min_s > 0 for times in found.messages)
    assert found.rounds.min_s >= sum(times.min_s for times in found.messages)
    assert found.rounds.max_s <= sum(times.max_s for times in found.messages)


def posted(receive: object, sent: bytes, length: object = None) -> bytes:
    return f"POST /{receive} HTTP/1.1\r\nContent-Length: {length or len(sent)}\r\n\r\n".encode() + sent


def test_the_announced_bytes_travel_both_ways_and_none_more() -> None:
    with listener() as (answering, said, _), socket.create_connection(("127.0.0.1", answering.port)) as raw:
        raw.sendall(posted(7, b"abcde") + posted(0, b""))
        raw.shutdown(socket.SHUT_WR)
        first, *rest = raw.makefile("rb").read().split(b"HTTP/1.1 200 OK\r\n")[1:]
    # Seven bytes after the first head, none after the second.
    assert len(first.partition(b"\r\n\r\n")[2]) == 7
    assert [one.partition(b"\r\n\r\n")[2] for one in rest] == [b""]
    assert said == []


@pytest.mark.parametrize(
    ("sent", "refusal"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", "Unsupported method ('GET')"),
        (b"\x16\x03\x01\x00\r\n", "Bad request syntax"),
        (b"x" * 70_000 + b"\r\n", "Request-URI Too Long"),
        (posted("x", b""), "expected POST /RECEIVE with a Content-Length"),
        (posted(0, b"", -5), "expected POST /RECEIVE"),
        (posted(0, b"", "1e3"), "expected POST /RECEIVE"),
        (posted(MAX_MESSAGE_BYTES + 1, b""), "messages may have 8000000000 bytes"),
        (posted(999999999999999999999, b""), "expected POST /RECEIVE"),
        (b"\x1b[31mrm / HTTP/1.1\r\n\r\n", "Unsupported method ('\\x1b[31mrm')"),
    ],
)
def test_garbage_is_refused_with_one_line_and_the_next_one_is_served(sent: bytes, refusal: str) -> None:
    with listener() as (answering, said, _):
        with socket.create_connection(("127.0.0.1", answering.port)) as raw, suppress(OSError):
            # It may have hung up already, before it read all that it refused.
            raw.sendall(sent)
            raw.shutdown(socket.SHUT_WR)
            while raw.recv(4096):
                pass
        assert measure_exchanges("127.0.0.1", answering.port, Sizes(10, 10, 10, 0), 1).rounds.n == 1
    assert len(said) == 1
    assert refusal in said[0]
    assert not {"\n", "\x1b"} & set(said[0])


def test_a_listener_gives_out_no_more_than_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listening, "MAX_TOTAL_BYTES", 1000)
    with listener() as (answering, said, ended):
        with pytest.raises(MeasureError, match="100 bytes are left of this listener's limit, got 300"):
            measure_exchanges("127.0.0.1", answering.port, Sizes(150, 150, 150, 150), 5)
        measure_exchanges("127.0.0.1", answering.port, Sizes(25, 25, 0, 0), 1)
    assert len(said) == 1
    assert "which is the limit" in ended[0]


def test_garbage_does_not_keep_a_listener_from_ending(monkeypatch: pytest.MonkeyPatch) -> None:
    # Given two strangers in the queue, and that the first takes all of the idle time,
    said: list[str] = []
    clock = SimpleNamespace(monotonic=lambda: time.monotonic() + 20.0 * len(said))
    monkeypatch.setattr(listening, "time", clock)
    answering = Listener("127.0.0.1", 0, 20.0, said.append)
    strangers = [socket.create_connection(("127.0.0.1", answering.port)) for _ in range(2)]
    for stranger in strangers:
        stranger.sendall(b"hello\r\n")
    # when it serves, it ends after the first instead of answering the second.
    assert answering.serve() == "idle for 20 s"
    assert len(said) == 1
    for stranger in strangers:
        stranger.close()


def test_the_command_listens_answers_and_stops(application: Path) -> None:
    words = "-m spotweave.cli measure fl --listen 127.0.0.1:0 --idle 60"
    command = [sys.executable, *words.split()]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        port = process.stdout.readline().split()[2].rpartition(":")[2]
        options = ("--only", "communication", "--peer", f"127.0.0.1:{port}", "--app", application)
        try:
            document = json.loads(measured(*options, "--stop-peer"))
            output, errors = process.communicate(timeout=60)
        finally:
            process.kill()
    assert "compute" not in document
    sizes = [message["bytes"] for message in document["communication"]["messages"]]
    assert sizes == [1_000_000, 1_000_000, 1_000_000, 2000]
    assert document["communication"]["round"]["n"] == 3
    assert (output, errors, process.returncode) == ("ended: asked to stop\n", "", 0)


# The file


def seconds(round_s: float, workload: str = "w", first_round_s: float | None = None) -> Measurement:
    return Measurement(round_s, workload, first_round_s)


def test_a_slowdown_is_the_quotient_of_the_seconds_and_all_else_stays(clouds: Path) -> None:
    old_text = clouds.read_text()
    before = json.loads(old_text)
    os.chmod(clouds, 0o640)
    merge(clouds, [ComputeResult("vm111", "us-east-1", seconds(2.0))], baseline=True)
    changes = merge(clouds, [ComputeResult("vm112", "us-east-1", seconds(5.0, "w", 6.0))], baseline=False)
    assert [change.text for change in changes] == [
        "compute slowdown of vm112 with data in us-east-1: 5.09 -> 2.5"
    ]
    after = json.loads(clouds.read_text())
    measured = after.pop("measured")
    before["compute_slowdowns"]["us-east-1"]["vm112"] = 2.5
    assert after == before
    seconds_of_vm112 = {"round_s": 5.0, "first_round_s": 6.0, "workload": "w"}
    assert measured["compute"]["us-east-1"]["vm112"] == seconds_of_vm112
    assert measured["baseline"] == {"vm_type": "vm111"}
    # Read as people wrote it: only the changed row and the new block differ.
    lines = clouds.read_text().splitlines()
    assert [line for line in old_text.splitlines() if line not in lines and line != "  ]"] == [
        line for line in old_text.splitlines() if '"vm112": 5.09' in line
    ]
    assert clouds.stat().st_mode & 0o777 == 0o640
    assert list(clouds.parent.iterdir()) == [clouds]


def test_a_baseline_that_is_measured_anew_divides_the_others_anew(bare: Path) -> None:
    merge(bare, [ComputeResult("cheap", "here", seconds(2.0))], baseline=True)
    merge(bare, [ComputeResult("dear", "here", seconds(1.0))], baseline=False)
    merge(bare, [ComputeResult("dear", "there", seconds(9.0), baseline_s=3.0)], baseline=False)
    changes = merge(bare, [ComputeResult("cheap", "here", seconds(4.0))], baseline=True)
    assert [(change.old, change.new) for change in changes] == [(1.0, 1.0), (0.5, 0.25)]
    expected = {"here": {"cheap": 1.0, "dear": 0.25}, "there": {"dear": 3.0}}
    assert read_clouds(bare).compute_slowdowns == expected


def test_the_order_of_two_regions_does_not_matter(bare: Path) -> None:
    merge(bare, [CommunicationResult(("here", "here"), seconds(2.0))], baseline=True)
    merge(bare, [CommunicationResult(("here", "there"), seconds(6.0))], baseline=False)
    changes = merge(bare, [CommunicationResult(("there", "here"), seconds(8.0))], baseline=False)
    assert [change.text for change in changes] == ["communication slowdown of here & there: 3 -> 4"]
    found = read_clouds(bare)
    assert found.communication_slowdowns == {("here", "here"): 1.0, ("here", "there"): 4.0}
    assert found.measured.communication[("here", "there")] == seconds(8.0)


def test_a_pair_that_is_given_in_both_orders_changes_in_both(bare: Path) -> None:
    orders = (["here", "there"], ["there", "here"])
    both = {"communication_slowdowns": [{"between": pair, "slowdown": 2.0} for pair in orders]}
    kept(bare, json.loads(bare.read_text()) | both)
    merge(bare, [CommunicationResult(("here", "there"), seconds(6.0), baseline_s=2.0)], baseline=False)
    assert set(read_clouds(bare).communication_slowdowns.values()) == {3.0}


def compute(vm_type: str, region: str = "us-east-1", workload: str = "w") -> ComputeResult:
    return ComputeResult(vm_type, region, seconds(1.0, workload))


def link(region: str, peer_region: str) -> CommunicationResult:
    return CommunicationResult((region, peer_region), seconds(1.0))


@pytest.mark.parametrize(
    ("result", "baseline", "message"),
    [
        (compute("vm9"), False, "--vm-type names VM type 'vm9', which is not there: use one of vm111"),
        (compute("vm112", "mars"), False, "--data-region names region 'mars', which is not there"),
        (compute("vm112", workload="other"), False, r"the baseline ran \[w\], this is \[other\]"),
        (compute("vm111"), False, "'vm111' is the baseline: measure it again with --baseline"),
        (compute("vm112"), True, "'vm111' is the baseline, not 'vm112'"),
        (compute("vm112", "us-central1"), False, "no seconds of a baseline VM type.*or give --baseline-s"),
        (link("us-east-1", "mars"), False, "--peer-region names region 'mars', which is not there"),
        (link("us-west-1", "us-east-1"), False, "--region names region 'us-west-1'"),
        (link("us-west1", "us-east-1"), False, "no seconds of a baseline pair"),
        (link("us-west-2", "us-east-1"), True, "is not the baseline.*measure 'us-east-1' & 'us-east-1' with"),
    ],
)
def test_what_cannot_be_merged_is_refused_before_and_after(
    clouds: Path, result: merging.Result, baseline: bool, message: str
) -> None:
    merge(clouds, [compute("vm111")], baseline=True)
    before = clouds.read_bytes()
    for refuse in (require_place, merge):
        with pytest.raises(FederationError, match=message):
            refuse(clouds, [result], baseline=baseline)
    assert clouds.read_bytes() == before


def test_slowdowns_of_another_baseline_are_not_mixed_with_ours(clouds: Path) -> None:
    with pytest.raises(FederationError, match=r"'vm112' is not the baseline.*measure 'vm111' with"):
        merge(clouds, [compute("vm112")], baseline=True)


def test_a_failed_writing_leaves_the_file_as_it_was(clouds: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = clouds.read_bytes()

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(WriteError, match="No space left"):
        merge(clouds, [compute("vm111")], baseline=True)
    assert clouds.read_bytes() == before
    assert list(clouds.parent.iterdir()) == [clouds]


def test_a_file_that_may_not_be_written_is_refused_first(
    clouds: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Root may write everything, so the answer of the system is played.
    real: Callable[..., bool] = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: path != clouds and real(path, mode))
    words = ("--into", clouds, "--vm-type", "vm111", "--baseline", *TINY)
    assert "clouds.json: it is read-only" in refused(*words)


@pytest.mark.parametrize(
    ("measured", "message"),
    [
        ({"baseline": {"vm_type": "vm9"}}, "measured names VM type 'vm9'"),
        ({"baseline": {"between": ["us-east-1"]}}, "measured.baseline.between.1: field required"),
        ({"compute": {"mars": {}}}, "measured names region 'mars'"),
        ({"compute": {"us-east-1": {"vm111": {"round_s": 1.0}}}}, "vm111.workload: field required"),
        ({"compute": {"us-east-1": {"vm111": {"round_s": 0.0, "workload": ""}}}}, "round_s is 0.0"),
        (
            {"communication": [{"between": PAIR, "round_s": "1", "workload": ""}]},
            "0.round_s: input should be",
        ),
        ({"compote": {}}, "measured.compote: unknown key"),
    ],
)
def test_a_mistake_in_the_measured_seconds_is_named(clouds: Path, measured: object, message: str) -> None:
    kept(clouds, json.loads(clouds.read_text()) | {"measured": measured})
    with pytest.raises(FederationError, match=message):
        read_clouds(clouds)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=12,
)


@given(document=st.dictionaries(st.text(), JSON, max_size=4))
def test_what_is_written_reads_back(document: dict[str, Any]) -> None:
    assert json.loads(written(document)) == document


# The command

INTO = ("--into", "CLOUDS", "--vm-type")


@pytest.mark.real
def test_measured_merged_and_planned_with(bare: Path, application: Path) -> None:
    # Given clouds of which nothing is known, no placement can be found.
    plan = ("plan", "fl", application, bare, "--json")
    assert "no compute slowdown" in mistake(*plan)
    document = json.loads(bare.read_text())
    document["regions"].pop()
    kept(bare, document)
    # When the baseline and another type are measured (here they are the same machine),
    options = ("--into", bare, "--app", application, *TINY)
    first = measured(*options, "--vm-type", "cheap", "--baseline")
    assert "compute slowdown of cheap with data in here: none -> 1" in first
    assert "communication slowdown of here & here: none -> 1" in first
    measured(*options, "--vm-type", "dear", "--only", "compute")
    # then the slowdown is the quotient of what was measured, and a placement is found with it.
    clouds = read_clouds(bare)
    rounds = clouds.measured.compute["here"]
    assert clouds.compute_slowdown("here", "dear") == pytest.approx(
        rounds["dear"].round_s / rounds["cheap"].round_s, rel=1e-3
    )
    assert all((one.first_round_s or 0) > 0 for one in rounds.values())
    best = json.loads(printed(*plan))["best"]
    client = best["clients"][0]["vm_type"]
    expected = (412.94 + 182.77) * clouds.compute_slowdown("here", client) + 27.26 + 0.1
    assert best["round_s"] == pytest.approx(expected)


@pytest.mark.real
def test_without_a_file_it_prints_json(application: Path) -> None:
    baselines = ("--baseline-s", "0.5", "--baseline-communication-s", "0.25")
    document = json.loads(measured("--app", application, *TINY, *baselines))
    for part, baseline_s in (("compute", 0.5), ("communication", 0.25)):
        median_s = document[part]["round"]["median_s"]
        assert document[part]["slowdown"] == pytest.approx(median_s / baseline_s, rel=1e-3)
    assert document["compute"]["round"]["n"] == 1
    first, later = (document["compute"][name]["median_s"] for name in ("first_round", "round"))
    assert document["compute"]["first_round_slowdown"] == pytest.approx(first / later, rel=1e-3)
    assert len(document["compute"]["loss"]) == 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--into", "CLOUDS"), "name the VM type that this machine is with --vm-type"),
        (("--into", "CLOUDS", "--only", "communication"), "name the region that this machine is in"),
        ((*INTO, "vm9"), "--vm-type names VM type 'vm9'"),
        ((*INTO, "vm111", "--region", "mars"), "--region names region 'mars'"),
        ((*INTO, "vm111", "--region", "us-west1"), "'vm111' is in region 'us-east-1'"),
        ((*INTO, "vm111", "--peer-region", "us-west1", "--baseline-s", "1"), "cannot be measured on one"),
        ((*INTO, "vm112"), "has no seconds of a baseline VM type"),
        (("--baseline",), "--baseline is about a clouds.json: name it with --into"),
        (("--into", "CLOUDS", "--baseline", "--baseline-s", "1"), "leave out --baseline-s"),
        (("--baseline-s", "0"), "--baseline-s is 0, expected seconds above 0"),
        (("--baseline-s", "nan"), "--baseline-s is nan"),
        (("--baseline-s", "1", "--only", "communication"), "--baseline-s is for what --only communication"),
        (("--only", "everything"), "--only is 'everything', expected compute or communication"),
        (("--rounds", "1"), "2 to 1000 rounds"),
        (("--repetitions", "0"), "1 to 1000 repetitions"),
        (("--samples", "1"), "--samples is 1, expected 40"),
        (("--device", "tpu"), "there is no device 'tpu'"),
        (("--app", "none.json"), "cannot read none.json"),
        (("--stop-peer",), "give --peer HOST:PORT"),
        (("--peer", "nowhere"), "--peer is 'nowhere', expected HOST:PORT"),
        (("--peer", "host:99999"), "--peer is 'host:99999', expected HOST:PORT"),
        (("--listen", "7007"), "--listen is '7007', expected HOST:PORT"),
        (("--listen", "127.0.0.1:0", "--idle", "0"), "--idle is 0 s"),
        (("--listen", "127.0.0.1:0", "--baseline"), "leave out what is measured here"),
        (("--listen", "192.0.2.1:7007"), "cannot listen on 192.0.2.1:7007"),
        (("--data-dir", "/nonexistent", "--only", "compute", *TINY), "cannot keep the dummy's data in /none"),
    ],
)
def test_a_mistake_gets_one_line_and_exit_code_2(
    clouds: Path, options: tuple[str, ...], message: str
) -> None:
    assert message in refused(*(clouds if option == "CLOUDS" else option for option in options))


def test_a_peer_that_is_not_there_or_is_something_else(application: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

        def answer() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(100)
                connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        options = ("--only", "communication", "--app", application, "--peer", f"127.0.0.1:{port}")
        assert "it answers 400, and is no `spotweave measure fl --listen`" in refused(*options)
        thread.join()
    assert f"cannot reach peer 127.0.0.1:{port}" in refused(*options)


def test_a_message_that_is_too_large_is_refused(application: Path) -> None:
    document = json.loads(application.read_text())
    document["messages_gb"]["client_train"] = 8.1
    kept(application, document)
    assert "message client_train has 8100000000 bytes, expected at most 8 GB" in refused("--app", application)
