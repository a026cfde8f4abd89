"""One job from the command line and from a program: status, logs, retry, download, ids by prefix."""

from __future__ import annotations

import json
import logging
import runpy
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import spotweave as package
from spotweave.deploy.cli import client as client_module
from spotweave.deploy.cli.client import Client, Cost, Job, JobSummary, ServiceError
from spotweave.deploy.model.jobs import JobState, TaskKey
from spotweave.deploy.model.tasks import Phase, TaskReport
from spotweave.deploy.security.tokens import Role
from spotweave.deploy.server import views
from spotweave.deploy.store.intents import CandidateRecord
from spotweave.deploy.store.store import Store
from tests.deploy.cli.commands import ROOT, out, refusal, spotweave
from tests.deploy.scheduler.worlds import offer
from tests.deploy.server.service import NOW, SCRIPT, Service, decide
from tests.deploy.store.cases import add_job, request
from tests.deploy.workflows import step, workflow

RESULTS = {"results/pi.json": b"3.14", "logs/driver-1.log": b"hello\n"}


pytestmark = pytest.mark.usefixtures("run")


@pytest.fixture
def job_id(service: Service) -> str:
    return service.submitted()


def leave(store: Store, job_id: str) -> None:
    for name, content in RESULTS.items():
        place = Path(store.jobs.get(job_id).workdir) / name
        place.parent.mkdir(exist_ok=True)
        place.write_bytes(content)


def test_status_is_one_screen_about_where_a_job_is_and_why(
    service: Service, store: Store, job_id: str
) -> None:
    service.begin(job_id)
    request(store, "i-1", offer("spot"), job_id, NOW)
    decide(store, job_id, CandidateRecord("spot", {}))
    shown = out(spotweave("status", job_id[:-1]))
    assert shown.splitlines()[0] == f"{job_id}  pending"
    words = ("spark-batch, hello.py", "by the submitter", "attempt 1", "main on spot", "main goes to spot")
    assert all(one in shown for one in words), shown
    service.end(job_id)
    assert "failed: as the test says" in out(spotweave("status", job_id))
    assert json.loads(out(spotweave("status", job_id, "--json")))["state"] == "failed"


def test_the_screen_stays_one_for_a_thousand_tasks_and_obeys_none(store: Store) -> None:
    add_job(store, "many-1", workflow(*(step(f"s{k}") for k in range(40))), submitter="the submitter")
    with store.transaction():
        key = TaskKey("many-1", "s0")
        attempt = store.tasks.begin(key, [], NOW)
        store.tasks.report_all([TaskReport(key, attempt, Phase.FAILED, message="\x1b[2J [bold]gone")], NOW)
    shown = out(spotweave("status", "many-1"))
    assert len(shown.splitlines()) < 24
    assert "and 30 more tasks" in shown
    assert "␛[2J [bold]gone" in shown
    assert "\x1b" not in out(spotweave("explain", "many-1"))


def test_a_list_says_of_each_deadline_whether_it_was_met(service: Service) -> None:
    work = {"kind": "spark-batch", "script": "hello.py", "deadline_s": 600.0}
    told = {}
    for state, ended_s, words in (
        (JobState.SUCCEEDED, 100.0, "met, 8m20s left"),
        (JobState.SUCCEEDED, 750.0, "late by 2m30s"),
        (JobState.FAILED, 100.0, "not met"),
        (JobState.FAILED, 750.0, "late by 2m30s"),
        (JobState.CANCELLED, 750.0, "-"),
    ):
        job_id = service.submitted(spec={"name": "hello", "work": work})
        service.end(job_id, state, NOW + ended_s)
        told[job_id] = words
    heading, *rows = out(spotweave("jobs")).splitlines()
    at = heading.index("DEADLINE")
    assert len(rows) == len(told)
    assert all(row[at:].startswith(f"{told[row.split()[0]]} ") for row in rows), rows


def test_logs_are_printed_whole_or_by_their_end(service: Service, job_id: str) -> None:
    waits = spotweave("logs", job_id)
    assert out(waits) == ""
    assert "main has not been started yet" in waits.stderr
    service.begin(job_id, b"one\ntwo\n\x1b[2J")
    assert out(spotweave("logs", job_id)) == "one\ntwo\n␛[2J"
    assert out(spotweave("logs", job_id, "--tail", "2")) == "two\n␛[2J"
    assert "has had no attempt 3: its latest is 1" in refusal(spotweave("logs", job_id, "--attempt", "3"))
    assert "it has main" in refusal(spotweave("logs", job_id, "--task", "other"))


def test_a_followed_log_goes_on_with_the_next_attempt_until_the_job_ends(
    service: Service, job_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def print_more(text: bytes) -> None:
        service.scheduler.printed["main", 1] += text

    steps: list[Callable[[], object]] = [
        lambda: service.begin(job_id, b"one\n"),
        lambda: print_more(b"two\n"),
        lambda: service.lose(job_id, 1),
        lambda: service.begin(job_id, b"again\n"),
        lambda: service.end(job_id),
    ]
    monkeypatch.setattr(client_module, "_POLL_S", 0.01)
    monkeypatch.setattr(
        "spotweave.deploy.cli.client.time.sleep",
        lambda seconds: steps.pop(0)() if steps and seconds == 0.01 else None,
    )
    followed = spotweave("logs", job_id, "-f")
    assert out(followed) == "one\ntwo\nagain\n"
    assert followed.stderr == "attempt 2 of main\n"
    assert not steps


def test_a_retry_says_the_new_id(service: Service, store: Store, job_id: str) -> None:
    assert "is pending" in refusal(spotweave("retry", job_id))
    service.end(job_id)
    again = out(spotweave("retry", job_id[:-2])).strip()
    assert again != job_id
    assert (Path(store.jobs.get(again).workdir) / "hello.py").read_bytes() == SCRIPT


def test_results_are_fetched_whole_and_overwrite_nothing(
    store: Store, job_id: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert "has left no files" in refusal(spotweave("download", job_id))
    leave(store, job_id)
    assert f"{tmp_path / job_id} has 2 files of job {job_id}" in out(spotweave("download", job_id[:-1]))
    (tmp_path / "empty").mkdir()
    out(spotweave("download", job_id, "empty"))
    for folder in (tmp_path / job_id, tmp_path / "empty"):
        assert {name: (folder / name).read_bytes() for name in RESULTS} == RESULTS
    assert "is there already" in refusal(spotweave("download", job_id))
    (tmp_path / "mine").write_text("mine")
    assert "is there already" in refusal(spotweave("download", job_id, "mine"))
    assert "cannot write to" in refusal(spotweave("download", job_id, "mine/below"))
    assert sorted(path.name for path in tmp_path.iterdir() if path.name[0] == ".") == []


def test_what_leads_elsewhere_or_does_not_fit_is_not_begun(
    job_id: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = ("../out", "/etc/x", "a/../../out", "a\\..\\out", "\x1b[2J", "")
    told = [({"good": 1, path: 1}, "leads elsewhere") for path in elsewhere]
    for files, words in (*told, ({"large": 1 << 60}, "more than is free")):
        monkeypatch.setattr(Client, "files", lambda self, job_id, files=files: files)
        with Client() as client, pytest.raises(ServiceError, match=words):
            client.download(job_id, tmp_path / "new")
        assert list(tmp_path.glob("*new*")) == [], files


def test_an_id_may_be_cut_as_long_as_it_is_clear_whose_it_is(service: Service, store: Store) -> None:
    for name in ("a-1", "a-12", "a-13", "a-14", "a-15", "a-16"):
        add_job(store, name, submitter="the submitter")
    told = refusal(spotweave("cancel", "a-"))
    assert told.startswith("error: 'a-' is the beginning of several jobs: ")
    assert told.endswith(" and more; give more of it")
    assert "a-1 is cancelled" in out(spotweave("cancel", "a-1")), "a whole id is always clear"
    assert "a-12 is cancelled" in out(spotweave("cancel", "a-12"))
    assert "there is no job 'b'" in refusal(spotweave("status", "b"))
    assert "there is no job '%'" in refusal(spotweave("status", "%"))
    assert json.loads(out(spotweave("instances", "--job", "a-13", "--json"))) == []
    event = json.loads(out(spotweave("events", "--job", "a-12", "--json")).splitlines()[0])
    assert event["job_id"] == "a-12"


@pytest.mark.parametrize(
    ("typed", "shown"),
    [(JobSummary, views.JobSummary), (Job, views.JobView), (Cost, views.CostView)],
)
def test_what_a_client_is_typed_to_return_is_what_the_service_sends(typed: Any, shown: Any) -> None:

    assert set(typed.__required_keys__) == set(shown.model_fields)


def ending(service: Service, monkeypatch: pytest.MonkeyPatch, state: JobState) -> None:
    """Every job ends while it is waited for, and has left something."""

    def sleep(seconds: float) -> None:
        for job in service.store.jobs.live():
            leave(service.store, job.job_id)
            service.begin(job.job_id, b"hello\n")
            service.end(job.job_id, state)

    monkeypatch.setattr("spotweave.deploy.cli.client.time.sleep", sleep)


def test_the_example_of_a_client_runs(
    service: Service,
    job_file: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    ending(service, monkeypatch, JobState.SUCCEEDED)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["client.py", str(job_file)])
    runpy.run_path(str(ROOT / "examples" / "client.py"))
    submitted, ended, log, files = capsys.readouterr().out.splitlines()
    job_id = submitted.split()[0]
    assert (ended, log) == ("it has succeeded for 0.0000 USD", "hello")
    assert files.endswith(str(tmp_path / job_id))
    assert (tmp_path / job_id / "results/pi.json").read_bytes() == b"3.14"


def test_a_program_submits_what_it_has_made_itself(service: Service, store: Store, url: str) -> None:
    spec = {"name": "made", "work": {"kind": "spark-batch", "script": "a.py"}}
    with package.Client(url, service.tokens[Role.SUBMITTER]) as client:
        first, same = (client.submit(spec, {"a.py": SCRIPT}, request_id="r-1") for _ in range(2))
        assert first["job_id"] == same["job_id"]
        with pytest.raises(package.ServiceError, match=r"needs|missing"):
            client.submit(spec)
    with package.Client(url, "") as client, pytest.raises(package.ServiceError) as refused:
        client.jobs()
    assert refused.value.status == 401
    with pytest.raises(AttributeError, match="no attribute 'Cleint'"):
        package.Cleint  # noqa: B018


class StandIn:
    """As Airflow's BaseOperator, as far as the example leans on it."""

    def __init__(self, *, task_id: str) -> None:
        self.task_id = task_id
        self.log = logging.getLogger("airflow")


@pytest.mark.parametrize("state", [JobState.SUCCEEDED, JobState.FAILED])
def test_the_operator_for_airflow_runs_a_job_to_its_end(
    service: Service, store: Store, job_file: Path, monkeypatch: pytest.MonkeyPatch, state: JobState
) -> None:
    sdk = types.ModuleType("airflow.sdk")
    sdk.BaseOperator = StandIn  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "airflow", types.ModuleType("airflow"))
    monkeypatch.setitem(sys.modules, "airflow.sdk", sdk)
    operator = runpy.run_path(str(ROOT / "examples" / "airflow_operator.py"))["SpotweaveOperator"]
    ending(service, monkeypatch, state)
    facts = {"dag_id": "d", "run_id": "scheduled__2026-01-01T00:00:00+00:00", "task_id": "t", "map_index": -1}
    context = {"ti": types.SimpleNamespace(**facts, try_number=1)}
    one = operator(task_id="t", job_file=str(job_file))
    if state is JobState.SUCCEEDED:
        told = one.execute(context)
        assert (told["state"], told["usd"]) == ("succeeded", 0.0)
        assert one.execute(context)["job_id"] == told["job_id"], "the same try is the same job"

        def killed(seconds: float) -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr("spotweave.deploy.cli.client.time.sleep", killed)
        context["ti"].try_number = 2
        with pytest.raises(KeyboardInterrupt):
            one.execute(context)
        one.on_kill()
        assert store.jobs.counts()[JobState.CANCELLED] == 1
        return
    with pytest.raises(RuntimeError, match="is failed: as the test says"):
        one.execute(context)
    context["ti"].try_number = 2
    with pytest.raises(RuntimeError, match="is failed"):
        one.execute(context)
    assert len(store.jobs.latest(9)) == 2
