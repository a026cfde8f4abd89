"""The commands that ask a service, against a real one over HTTP."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import httpx
import pytest
from click.testing import Result

from spotweave.deploy.billing import CHARGES_PER_USD
from spotweave.deploy.cli import client as client_module
from spotweave.deploy.cli import queries
from spotweave.deploy.cli.client import Client, Job, ServiceError
from spotweave.deploy.model.instances import InstanceState
from spotweave.deploy.model.jobs import JobState
from spotweave.deploy.security.tokens import AccessTokens, Role
from spotweave.deploy.server.admission import Quotas
from spotweave.deploy.server.deciding import Deciders
from spotweave.deploy.server.run import HttpListener as Listening
from spotweave.deploy.store.instances import Instance
from spotweave.deploy.store.intents import CandidateRecord
from spotweave.deploy.store.store import Store
from tests.deploy.cli.commands import ROOT, out, refusal, spotweave
from tests.deploy.node.agents import wait_until
from tests.deploy.runners.patience import peer
from tests.deploy.scheduler.worlds import offer
from tests.deploy.server.service import NOW, Service, decide, make_service
from tests.deploy.store.cases import add_job, report, request
from tests.deploy.workflows import step, workflow


def submitted(result: Result) -> str:
    return out(result).strip()


def test_a_job_is_sent_with_what_it_names_and_nothing_else(run: Any, job_file: Path, store: Store) -> None:
    job_id = submitted(run("submit", job_file))
    job = store.jobs.get(job_id)
    assert job.submitter == "the submitter"
    folder = Path(job.workdir)
    assert {path.name for path in folder.iterdir() if path.name[0] != "."} == {"hello.py", "words.txt"}
    assert (folder / "words.txt").read_text() == "one two\n"


@pytest.mark.real
def test_lists_for_people_and_for_scripts(run: Any, job_file: Path, store: Store) -> None:
    assert run("jobs").stdout == "no jobs yet: spotweave submit FILE\n"
    assert run("instances").stdout == "no instance is rented\n"
    assert run("costs").stdout == "nothing has been rented yet\n"
    job_id = submitted(run("submit", job_file))
    (line,) = run("jobs", "--state", "pending").stdout.splitlines()[1:]
    assert line.split()[:3] == [job_id, "spark-batch", "pending"]
    assert run("jobs", "--state", "failed").stdout == "no job is failed\n"
    (job,) = json.loads(run("jobs", "--json").stdout)
    assert job["job_id"] == job_id
    assert json.loads(run("instances", "--json").stdout) == []
    assert json.loads(run("costs", "--by", "offer", "--json").stdout)["by"] == "offer"


def test_what_could_be_rented_is_chosen_by_gpu_and_price(run: Any, service: Service) -> None:
    service.scheduler.shown = [
        offer("d"),
        offer("a", "on_demand", gpu="T4", gpus=1, up_ratio=0.25),
        offer("b", gpu="T4", gpus=4, zone="here-b", available=False, reason="[refused] there"),
        offer("c", gpu="A10G", gpus=1),
    ]
    found = json.loads(run("offers", "--gpu", "t4", "--json").stdout)
    assert [one["offer_id"] for one in found] == ["a", "b"]
    (one,) = json.loads(run("offers", "--gpu", "T4", "--max-price", "0.40", "--json").stdout)
    assert one["offer_id"] == "b"
    heading, first, second = (line.split() for line in run("offers", "--gpu", "T4").stdout.splitlines())
    assert heading == ["ZONE", "TYPE", "MARKET", "GPU", "USD/H", "ON", "DEMAND", "UP", "SCORE", "AVAILABLE"]
    assert first == ["here-a", "small", "on_demand", "T4", "1.00", "1.00", "25", "%", "-", "yes"]
    assert second[3:5] == ["4", "T4"]
    assert (second[0], second[-3:]) == ("here-b", ["no:", "[refused]", "there"])
    heading, *rows = (line.split() for line in run("clusters").stdout.splitlines())
    assert heading[:2] == ["OFFER", "USD/H"]
    assert [row[0] for row in rows] == ["a", "b", "c", "d"]
    assert (rows[0][-1], rows[1][-3:]) == ("yes", ["no:", "[refused]", "there"])


def rented_for_an_hour(store: Store, number: int) -> Instance:
    """By a job of its own."""
    job_id, name, began_s, gone = f"job-{number}", f"i-{number}", NOW - 3600, InstanceState.TERMINATED
    add_job(store, job_id, submitted_s=began_s + number)
    request(store, name, offer("spot"), job_id, began_s)
    return report(store, name, gone, offer_id="spot", launched_s=began_s, now_s=NOW, ended_s=NOW)


def test_costs_by_zone_and_market_beside_what_on_demand_would_have_cost(run: Any, store: Store) -> None:
    known = rented_for_an_hour(store, 1)
    with store.transaction():
        store.egress.add(known.key, 1, known, CHARGES_PER_USD // 10, NOW - 3600)
    for by, name in (("zone", "local/here/here-a"), ("market", "spot"), ("job", "job-1"), ("offer", "spot")):
        heading, line, total = run("costs", "--by", by).stdout.splitlines()
        assert heading.split() == (f"{by.upper()} USD DISKS EGRESS ON DEMAND SAVED INSTANCE HOURS".split())
        assert line.split() == [name, "0.4000", "0.00", "0.1000", "1.10", "64", "%", "1.00"]
        assert total.split()[1:] == line.split()[1:]


def test_costs_beyond_the_listed_jobs_are_others(
    run: Any, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        rented_for_an_hour(store, number)
    get = Client.get
    monkeypatch.setattr(Client, "get", lambda self, path, **query: get(self, path, limit=1, **query))
    lines = [line.split() for line in run("costs", "--by", "job").stdout.splitlines()[1:]]
    assert [(line[0], line[1], line[-1]) for line in lines] == [
        ("job-2", "0.3000", "1.00"),
        ("others", "0.6000", "2.00"),
        ("total", "0.9000", "3.00"),
    ]


def test_what_is_asked_for_too_fast_is_asked_again_when_it_is_time(
    job_file: Path, tmp_path: Path, store: Store, rules: Deciders, monkeypatch: pytest.MonkeyPatch
) -> None:
    quotas = Quotas(jobs_a_minute=2, live_jobs=4, free_disk_mib=0)
    service = make_service(tmp_path, store, rules, quotas=quotas)
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        service.clock.sleep(seconds)

    monkeypatch.setattr(client_module, "_sleep", sleep)
    monkeypatch.setenv("SPOTWEAVE_TOKEN", service.tokens[Role.SUBMITTER])
    with Listening(service.app, "127.0.0.1", 0) as listening:
        server = ("--server", f"http://127.0.0.1:{listening.port}")
        result = spotweave("submit", job_file, job_file, job_file, *server)
        assert len(submitted(result).split()) == 3
        assert slept == [60.0]
        assert "trying again in 60 s" in result.stderr
        submitted(spotweave("submit", job_file, *server))
        assert "4 of your jobs have not ended" in refusal(spotweave("submit", job_file, *server))
        assert slept == [60.0], "nothing says when one of them ends"


def test_explain_shows_decisions_and_events(run: Any, job_file: Path, store: Store) -> None:
    job_id = submitted(run("submit", job_file))
    assert "No decision yet" in run("explain", job_id).stdout
    decide(
        store,
        job_id,
        CandidateRecord("spot", {"delay": -1.5, "money": -2.25}, 0.012, True, "", -3.75, 2.5, 5400.0, 0.25),
        CandidateRecord("sure", {}, 0.04, False, "0 of 6 instances are free", None, 3.5, 5400.0, 0.0),
        CandidateRecord(None, {"delay": -2.61}, total=-4.0, expected_usd=4.23),
    )
    told = run("explain", job_id).stdout
    rows = [line.split() for line in told.splitlines()]
    assert [">", "spot", "0.0120", "1.50", "25", "2.5", "-3.75", "+0"] in rows
    assert ["none", "for", "now", "-", "-", "-", "4.23", "-4", "-0.25"] in rows
    assert "values of the first: delay -1.5, money -2.25" in told
    words = ("main goes to spot", "decision 1 of the policy spotweave, in 4 ms", "0 of 6 instances are free")
    assert all(one in told for one in (*words, "job.submitted"))
    assert json.loads(run("explain", job_id, "--json").stdout)["job"]["job_id"] == job_id


def test_a_job_is_cancelled_and_what_cannot_be_is_told(run: Any, job_file: Path, store: Store) -> None:
    job_id = submitted(run("submit", job_file))
    result = run("cancel", "no-such-job", job_id)
    assert "no-such-job" in refusal(result)
    assert result.stdout == f"{job_id} is cancelled; what it still runs is being ended\n"
    assert store.jobs.get(job_id).state is JobState.CANCELLED
    assert run("cancel", job_id).exit_code == 0, "once more changes nothing"


@pytest.mark.real
@pytest.mark.parametrize(("end", "code"), [(JobState.SUCCEEDED, 0), (JobState.FAILED, 1)])
def test_an_exit_code_tells_the_end(
    run: Any, job_file: Path, service: Service, store: Store, end: JobState, code: int
) -> None:
    def finish() -> None:
        wait_until(lambda: store.jobs.live())
        service.end(store.jobs.live()[0].job_id, end, NOW + 90)

    threading.Thread(target=finish).start()
    result = run("submit", job_file, "--wait")
    assert result.exit_code == code, result.output
    assert str(end) in result.stdout
    assert "as the test says" in result.stdout
    assert ("met, 8m30s left" in result.stdout) == (end is JobState.SUCCEEDED)


def write(store: Store, count: int, text: str = "") -> None:
    for _ in range(count):
        with store.transaction():
            store.events.add("test.event", NOW, {"text": text})


@pytest.mark.real
def test_events_are_followed_over_a_break_without_loss_or_repetition(
    service: Service, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spotweave.deploy.cli.client._AGAIN_S", 0.05)
    monkeypatch.setenv("SPOTWEAVE_TOKEN", service.tokens[Role.VIEWER])
    write(store, 3)
    seen: list[int] = []
    refused: list[ServiceError] = []

    def follow(port: int) -> None:
        try:
            with Client(f"http://127.0.0.1:{port}") as client:
                seen.extend(event["sequence"] for event in client.follow(1, None))
        except ServiceError as error:
            refused.append(error)

    with Listening(service.app, "127.0.0.1", 0) as listening:
        follower = threading.Thread(target=follow, args=(listening.port,), daemon=True)
        follower.start()
        wait_until(lambda: seen == [2, 3])
    write(store, 2)
    service.app.state.context.closing.clear()
    with Listening(service.app, "127.0.0.1", listening.port):
        wait_until(lambda: seen == [2, 3, 4, 5])
        write(store, 1)
        wait_until(lambda: seen == [2, 3, 4, 5, 6])
        with store.transaction():
            for record in store.tokens.all():
                store.tokens.revoke(record.token_id, NOW)
    # What the service refuses is not tried again.
    service.app.state.context.closing.clear()
    with Listening(service.app, "127.0.0.1", listening.port):
        follower.join(60)
    assert "was revoked" in str(refused[0])


def test_the_latest_events_are_shown_in_one_line_each(run: Any, job_file: Path) -> None:
    assert run("events").stdout == "nothing has happened yet\n"
    job_id = submitted(run("submit", job_file))
    (line,) = run("events", "--job", job_id).stdout.splitlines()
    shown = f"job.submitted {job_id} name=hello kind=spark-batch submitter=the submitter"
    assert line.split()[2:] == shown.split()
    assert json.loads(run("events", "--json").stdout)["kind"] == "job.submitted"


def test_a_lost_answer_does_not_submit_twice(
    run: Any, job_file: Path, store: Store, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, lost = httpx.Client.request, [True]

    def losing(self: httpx.Client, method: str, path: str, **arguments: Any) -> httpx.Response:
        response = real(self, method, path, **arguments)
        if lost:
            lost.clear()
            raise httpx.ReadError("the answer is lost")
        return response

    monkeypatch.setattr(httpx.Client, "request", losing)
    submitted(run("submit", job_file))
    assert len(store.jobs.live()) == 1


def test_who_may_not_is_told_what_to_do(service: Service, url: str, job_file: Path, tmp_path: Path) -> None:
    def refused(*words: str | Path, token: str = "") -> str:
        return refusal(spotweave(*words, "--server", url, env={"SPOTWEAVE_TOKEN": token} if token else None))

    assert "SPOTWEAVE_TOKEN" in refused("submit", job_file)
    viewer = service.tokens[Role.VIEWER]
    assert "this needs a submitter's" in refused("submit", job_file, token=viewer)
    assert service.store.jobs.live() == []
    expired = AccessTokens(service.store).create("old", Role.ADMIN, NOW - 10, 5.0).text
    line = refused("jobs", token=expired)
    assert "has expired: make a new one" in line
    assert expired not in line
    assert "is not known here" in refused("jobs", token="spw_0123456789ab_" + "A" * 43)
    file = tmp_path / "token"
    assert "cannot read the token file" in refused("jobs", "--token-file", file)
    file.write_text(viewer + "\n")
    file.chmod(0o644)
    assert "so that others can use it" in refused("jobs", "--token-file", file)
    file.chmod(0o600)
    assert spotweave("jobs", "--server", url, "--token-file", file).exit_code == 0


NO_JAVA_HERE = "Spark jobs need Java 17 or newer, and there is none on PATH: install one"
CANNOT_RUN = [
    ("work: {kind: spark-batch, script: gone.py}", "gone.py: no such file or folder"),
    ("work: {kind: spark-batch, script: ../hello.py}", "../hello.py: no such file"),
    ("work: {kind: spark-batch, scirpt: hello.py}", "work.spark-batch.scirpt"),
    ("work: {kind: spark-batch, script: hello.py, deadline_s: 5, standard_s: 100}", "deadline"),
    ("work: {kind: spark-batch, script: hello.py}\nresources: {vcpus: 99}", "no offer can run"),
    (": : :", "is not YAML"),
    ("- a\n- b\n", "expected a mapping"),
    ("work: {kind: spark-batch, script: hello.py}", NO_JAVA_HERE),
]


def test_a_job_that_cannot_run_is_refused_in_one_line(run: Any, job_file: Path, service: Service) -> None:
    for job, message in CANNOT_RUN:
        service.scheduler.refusal = NO_JAVA_HERE if message == NO_JAVA_HERE else ""
        job_file.write_text(job if job.startswith("-") else f"name: hello\n{job}\n")
        assert message in refusal(run("submit", job_file))
    assert service.store.jobs.live() == []


def test_links_out_of_the_folder_are_not_followed(run: Any, job_file: Path, store: Store) -> None:
    (job_file.parent / "words.txt").unlink()
    (job_file.parent / "words.txt").symlink_to("/etc/hostname")
    job_id = submitted(run("submit", job_file))
    # It is an argument like any other.
    assert not (Path(store.jobs.get(job_id).workdir) / "words.txt").exists()
    folder = job_file.parent / "app"
    folder.mkdir()
    (folder / "pyproject.toml").write_text("")
    (folder / "data").symlink_to("/etc/hostname")
    job_file.write_text("name: fl\nwork: {kind: flower, app: app, rounds: 1, clients: [{name: a}]}\n")
    assert "outside of the job's folder" in refusal(run("submit", job_file))


def test_a_job_that_does_not_exist_is_told_whatever_was_typed(run: Any) -> None:
    for name in ("no/such?job", "..", "", "none"):
        assert f"there is no job {name!r}" in refusal(run("explain", name))


def test_something_else_that_answers_is_told_from_a_service() -> None:
    def answer(connection: socket.socket) -> None:
        known = connection.recv(1 << 16).startswith(b"GET /v1/jobs")
        status = b"200 OK" if known else b"404 Not Found"
        connection.sendall(b"HTTP/1.1 " + status + b"\r\nConnection: close\r\n\r\n<html>hello</html>")

    with peer(answer) as port:
        server = f"http://127.0.0.1:{port}"
        assert "is no Spotweave service" in refusal(spotweave("jobs", "--server", server))
        assert "is no Spotweave service (status 404)" in refusal(spotweave("clusters", "--server", server))


@pytest.mark.real
def test_waiting_outlives_a_service_that_is_away(
    service: Service, store: Store, job_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_module, "_POLL_S", 0.05)
    monkeypatch.setenv("SPOTWEAVE_TOKEN", service.tokens[Role.SUBMITTER])
    ended: list[Job] = []
    with Listening(service.app, "127.0.0.1", 0) as first:
        client = Client(f"http://127.0.0.1:{first.port}")
        job_id = client.submit(job_file)["job_id"]
        waiting = threading.Thread(target=lambda: ended.extend(queries.wait_for(client, [job_id])))
        waiting.start()
        time.sleep(0.3)
    service.end(job_id, JobState.SUCCEEDED)
    time.sleep(0.3)
    with Listening(service.app, "127.0.0.1", first.port), client:
        waiting.join(60)
    assert [job["state"] for job in ended] == ["succeeded"]


def test_steps_that_wait_for_others_are_not_said_to_wait_for_a_place(
    service: Service, url: str, store: Store, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setenv("SPOTWEAVE_TOKEN", service.tokens[Role.SUBMITTER])
    add_job(store, spec=workflow(step("one"), step("two", "one-out"), step("three", "one-out")))

    monkeypatch.setattr(
        "spotweave.deploy.cli.client.time.sleep", lambda _: service.end("j1", JobState.SUCCEEDED, reason="")
    )
    with Client(url) as client:
        queries.wait_for(client, ["j1"])
    first, last = capsys.readouterr().err.splitlines()
    assert first.endswith("j1 pending: 1 waiting for a place, 2 waiting for other steps")
    assert last.endswith("j1 succeeded")


@pytest.mark.real
def test_whoever_has_read_enough_ends_a_command_quietly(service: Service, url: str, store: Store) -> None:
    with store.transaction():
        write(store, 1000, "x" * 200)
    events = f"{sys.executable} -m spotweave.cli events --limit 1000 --json"
    command = f"{events} | head -n 1; exit ${{PIPESTATUS[0]}}"
    env = {**os.environ, "SPOTWEAVE_SERVER": url, "SPOTWEAVE_TOKEN": service.tokens[Role.VIEWER]}
    ended = subprocess.run(["bash", "-c", command], cwd=ROOT, env=env, capture_output=True, text=True)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert json.loads(ended.stdout)["kind"] == "test.event"
