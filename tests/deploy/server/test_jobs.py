"""Jobs over HTTP: submission, listing, cancelling, explanation."""

from __future__ import annotations

import base64
import stat
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deploy.model.instances import InstanceReport, InstanceState
from deploy.model.jobs import JobState, TaskKey
from deploy.runners.flower import app
from deploy.runners.flower.inspecting import inspect
from deploy.security.roles import Role
from deploy.security.tokens import AccessTokens
from deploy.server import uploads
from deploy.server.app import create_app
from deploy.server.deciding import Deciders
from deploy.server.settings import ServerSettings
from deploy.server.uploads import MANIFEST, Staged, UploadError, check_names
from deploy.store.decisions import CandidateRecord
from deploy.store.store import Store
from tests.deploy.scheduler.cases import offer
from tests.deploy.server.service import (
    NOW,
    SCRIPT,
    Api,
    Service,
    decide,
    job_request,
    make_service,
    one_line_error,
)


def encoded(text: bytes = b"x") -> str:
    return base64.b64encode(text).decode()


def flower(app: str = "app", **files: str) -> dict[str, Any]:
    work = {"kind": "flower", "app": app, "rounds": 3, "clients": [{"name": "one"}, {"name": "two"}]}
    return {"spec": {"name": "digits", "work": work}, "files": files}


def folders(service: Service) -> list[str]:
    return sorted(path.name for path in service.jobs.iterdir()) if service.jobs.exists() else []


def test_a_job_and_its_files_are_kept_before_it_is_there(service: Service) -> None:
    files = {"hello.py": encoded(SCRIPT), "lib/words.txt": encoded(b"\0\xff")}
    response = service.submitter.post("/v1/jobs", json=job_request(files=files))
    assert response.status_code == 201
    shown = response.json()
    assert (shown["state"], shown["submitter"]) == ("pending", "the submitter")
    assert [task["task"] for task in shown["tasks"]] == ["main"]
    job = service.store.jobs.get(shown["job_id"])
    workdir = Path(job.workdir)
    assert workdir == service.jobs / job.job_id
    assert (workdir / "hello.py").read_bytes() == SCRIPT
    assert (workdir / "lib" / "words.txt").read_bytes() == b"\0\xff"
    for path in workdir.rglob("*"):
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600)
    assert [event.kind for event in service.store.events.after(0, 10, job_id=job.job_id)] == ["job.submitted"]
    # The runner saw the files under a name that is gone now.
    ((_, checked),) = service.scheduler.checked
    assert not Path(checked).exists()


def test_a_flower_job_has_a_task_for_each_client(service: Service) -> None:
    files = {"app/pyproject.toml": encoded(), "app/model.py": encoded()}
    response = service.submitter.post("/v1/jobs", json=flower(**files))
    assert response.status_code == 201
    assert [task["task"] for task in response.json()["tasks"]] == ["client-one", "client-two"]
    assert (
        service.submitter.post("/v1/jobs", json=flower(".", **{"pyproject.toml": encoded()})).status_code
        == 201
    )


def test_the_same_request_again_is_the_same_job(service: Service) -> None:
    request = job_request(request_id="r-1")
    first, again = (service.submitter.post("/v1/jobs", json=request) for _ in range(2))
    assert (first.status_code, again.status_code) == (201, 200)
    assert first.json() == again.json()
    assert folders(service) == [first.json()["job_id"]]
    # A runner may change what it was given; the request is still the same.
    (service.jobs / first.json()["job_id"] / "hello.py").write_bytes(b"changed")
    assert service.submitter.post("/v1/jobs", json=request).status_code == 200
    other_files = job_request(request_id="r-1", files={"hello.py": encoded(b"other")})
    other_spec = job_request(request_id="r-1")
    other_spec["spec"]["name"] = "other"
    for changed in (other_files, other_spec):
        refused = service.submitter.post("/v1/jobs", json=changed)
        assert refused.status_code == 409
        assert "use a new request id" in one_line_error(refused)
    another = Api(service.app, AccessTokens(service.store).create("another", Role.SUBMITTER, NOW).text)
    assert another.post("/v1/jobs", json=request).status_code == 201
    assert len(folders(service)) == 2


@pytest.mark.parametrize(
    ("request_body", "message"),
    [
        (job_request(files={}), "the script 'hello.py' is missing, and the job came with no files"),
        (job_request(files={"other.py": encoded()}), "came with other.py"),
        (flower(**{"app/model.py": encoded()}), "needs 'app/pyproject.toml'"),
        (job_request(files={"hello.py": "?"}), "the content of 'hello.py' is not base64"),
        (job_request(files={"hello.py": encoded(), "../x": encoded()}), "a file is called '../x'"),
        (job_request(files={"hello.py": encoded(), "logs/x": encoded()}), "logs is a name that the service"),
        (job_request(request_id="a b"), "request_id"),
        (job_request(colour="red"), "colour: Extra inputs"),
        ({"spec": {"name": "x"}}, "spec.work: Field required"),
    ],
)
def test_a_job_that_is_refused_leaves_nothing(
    service: Service, request_body: dict[str, Any], message: str
) -> None:
    response = service.submitter.post("/v1/jobs", json=request_body)
    assert response.status_code == 422
    assert message in one_line_error(response)
    assert folders(service) == []
    assert service.store.jobs.latest(10) == []
    assert service.store.events.latest(10) == []


def test_what_a_runner_refuses_is_refused_before_anything_is_kept(service: Service) -> None:
    service.scheduler.refusal = "{folder}/hello.py\nis not Python: correct it"
    response = service.submitter.post("/v1/jobs", json=job_request())
    assert response.status_code == 422
    assert one_line_error(response) == "hello.py is not Python: correct it"
    assert folders(service) == []


@pytest.mark.parametrize(
    "project",
    [
        b"tool = 5",
        b"[tool]\nflwr = []",
        b"[tool.flwr.app]\nconfig = 5",
        b"x = " + b"[" * 20_000,
        b"x = " + b"9" * 100_000,
        b"a" + b".a" * 20_000 + b" = 1",
        b"\xff\xfe",
        b"[tool.flwr.app.components]\nserverapp = '" + b"a" * 5000 + b":app'",
    ],
)
def test_files_that_nobody_would_write_are_refused_in_one_line(
    service: Service, project: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        service.scheduler,
        "check",
        lambda spec, folder: app.check(spec, Path(folder), lambda at, name: inspect(at / name, name)),
    )
    response = service.submitter.post("/v1/jobs", json=flower(**{"app/pyproject.toml": encoded(project)}))
    assert response.status_code == 422
    one_line_error(response)
    assert folders(service) == []


@pytest.mark.parametrize(
    ("work", "resources", "message"),
    [
        ({"deadline_s": 600.0, "standard_s": 600.0}, {}, "the deadline of 600 s cannot be met: the fastest"),
        ({}, {"vcpus": 64}, "no offer can run this job: spot has 4 vCPUs, the job needs 64"),
        ({}, {"gpu": "H100"}, "has no GPU, the job needs H100"),
    ],
)
def test_a_job_that_no_offer_can_run_is_refused(
    service: Service, work: dict[str, Any], resources: dict[str, Any], message: str
) -> None:
    request = job_request()
    request["spec"]["work"].update(work)
    request["spec"]["resources"] = resources
    response = service.submitter.post("/v1/jobs", json=request)
    assert response.status_code == 422
    assert message in one_line_error(response)


def test_a_bag_with_a_task_that_no_offer_can_run_is_refused(service: Service) -> None:
    small, large = ({"name": name, "command": ["date"], "minutes": 10} for name in ("small", "large"))
    request = job_request(files={})

    def submit(**task: Any) -> Any:
        work = {"kind": "bag", "tasks": [small, {**large, **task}], "deadline_s": 1200.0}
        request["spec"]["work"] = work
        return service.submitter.post("/v1/jobs", json=request)

    taken = submit()
    assert taken.status_code == 201
    assert (taken.json()["tasks_done"], taken.json()["tasks_all"]) == (0, 2)
    assert service.submitter.get("/v1/jobs").json()[0]["tasks_all"] == 2
    no_offer = "no offer can run task 'large' of this job: spot has "
    for task, message in (
        ({"vcpus": 64}, no_offer + "4 vCPUs, the job needs 64"),
        ({"memory_gib": 9.0}, no_offer + "8 GiB, the job needs 9"),
        ({"minutes": 30}, "deadline of 1200 s cannot be met: the fastest offer, spot, needs about 1860 s"),
    ):
        response = submit(**task)
        assert response.status_code == 422
        assert message in one_line_error(response)


def test_a_deadline_that_one_offer_can_meet_is_taken(service: Service) -> None:
    # 60 s of launch and 600 of work at speed 1.
    request = job_request()
    request["spec"]["work"].update({"deadline_s": 661.0, "standard_s": 600.0})
    assert service.submitter.post("/v1/jobs", json=request).status_code == 201
    request["spec"]["work"].update({"deadline_s": 361.0})
    assert service.submitter.post("/v1/jobs", json=request).status_code == 422
    service.scheduler.shown.append(offer("fast", speed=2.0, available=False))
    assert service.submitter.post("/v1/jobs", json=request).status_code == 201


def test_while_no_offer_is_known_nothing_is_refused_for_it(service: Service) -> None:
    service.scheduler.shown = []
    assert service.submitter.post("/v1/jobs", json=job_request()).status_code == 201


def test_jobs_are_listed_the_newest_first_and_by_state(service: Service) -> None:
    ids = []
    for _ in range(3):
        ids.append(service.submitter.post("/v1/jobs", json=job_request()).json()["job_id"])
        service.clock.sleep(1.0)
    service.submitter.delete(f"/v1/jobs/{ids[1]}")
    viewer = service.as_(Role.VIEWER)
    assert [job["job_id"] for job in viewer.get("/v1/jobs").json()] == ids[::-1]
    assert [job["job_id"] for job in viewer.get("/v1/jobs?limit=1").json()] == ids[2:]
    cancelled = viewer.get("/v1/jobs?state=cancelled&state=failed").json()
    assert [job["job_id"] for job in cancelled] == [ids[1]]
    assert viewer.get("/v1/jobs?state=lost").status_code == 422
    assert viewer.get("/v1/jobs?limit=0").status_code == 422


def test_cancelling_twice_is_cancelling_once_and_what_has_ended_stays(service: Service) -> None:
    job_id = service.submitter.post("/v1/jobs", json=job_request()).json()["job_id"]
    first, again = (service.submitter.delete(f"/v1/jobs/{job_id}") for _ in range(2))
    assert (first.status_code, again.status_code) == (200, 200)
    assert again.json()["state"] == "cancelled"
    assert again.json()["reason"] == "cancelled by the submitter"
    kinds = [event.kind for event in service.store.events.after(0, 10, job_id=job_id)]
    assert kinds == ["job.submitted", "job.cancelled"]
    done = service.submitter.post("/v1/jobs", json=job_request()).json()["job_id"]
    with service.store.transaction():
        service.store.jobs.set_state(done, JobState.SUCCEEDED, NOW)
    refused = service.submitter.delete(f"/v1/jobs/{done}")
    assert refused.status_code == 409
    assert "has succeeded already" in one_line_error(refused)


def test_explain_shows_decisions_and_events_of_the_job(service: Service) -> None:
    job_id, other = (service.submitter.post("/v1/jobs", json=job_request()).json()["job_id"] for _ in "ab")
    for one in (job_id, other):
        spot, wait = CandidateRecord("spot", {"money": 1.5}, 0.3), CandidateRecord(None, {"money": -0.5})
        decide(service.store, one, spot, wait)
    viewer = service.as_(Role.VIEWER)
    shown = viewer.get(f"/v1/jobs/{job_id}/explain").json()
    assert shown["job"]["job_id"] == job_id
    assert [event["kind"] for event in shown["events"]] == ["job.submitted"]
    (decision,) = shown["decisions"]
    assert (decision["job_id"], decision["chosen"]) == (job_id, "spot")
    assert [one["values"] for one in decision["candidates"]] == [{"money": 1.5}, {"money": -0.5}]
    assert viewer.get(f"/v1/decisions/{decision['decision_id']}").json() == decision
    assert len(viewer.get("/v1/decisions").json()) == 2
    assert viewer.get(f"/v1/decisions?job_id={job_id}").json() == [decision]


@pytest.mark.parametrize("job_id", ["nope", "no-such-job-0123456789"])
def test_a_job_that_is_not_there(unchanged: Service, job_id: str) -> None:
    for method, path in (("GET", ""), ("GET", "/explain"), ("DELETE", "")):
        response = unchanged.submitter.request(method, f"/v1/jobs/{job_id}{path}")
        assert response.status_code == 404
        assert "there is no job" in one_line_error(response)


@pytest.mark.parametrize("job_id", ["A", "a%00b", "a%2Fb", "%ff", "..", "a" * 81, "'; drop table jobs"])
def test_what_cannot_be_a_job_id_is_refused(unchanged: Service, job_id: str) -> None:
    response = unchanged.submitter.get(f"/v1/jobs/{job_id}")
    assert response.status_code in (404, 422)
    one_line_error(response)


def test_instances_offers_and_costs_are_those_of_the_store_without_secrets(service: Service) -> None:
    job_id = service.submitter.post("/v1/jobs", json=job_request()).json()["job_id"]
    rented = replace(service.scheduler.shown[0], price_usd_hour=0.36, on_demand_usd_hour=0.72)
    for name in ("i-1", "i-2"):
        with service.store.transaction():
            service.store.instances.request(
                name, rented, TaskKey(job_id, "main"), client_token=f"c-{name}", node_token="hush", now_s=NOW
            )
            told = InstanceReport(
                f"p-{name}", f"c-{name}", rented.offer_id, "127.0.0.9", 7000, InstanceState.RUNNING, NOW
            )
            service.store.instances.report(name, told, NOW)
    with service.store.transaction():
        service.store.instances.ended("i-1", NOW + 1800.0)
    service.clock.sleep(3600.0)
    viewer = service.as_(Role.VIEWER)
    live, all_of_them = (viewer.get(f"/v1/instances{query}").json() for query in ("", "?ended=true"))
    assert [one["instance_id"] for one in live] == ["i-2"]
    assert sorted(one["instance_id"] for one in all_of_them) == ["i-1", "i-2"]
    of_job = viewer.get(f"/v1/instances?job_id={job_id}&ended=true").json()
    assert [one["instance_id"] for one in of_job] == ["i-1", "i-2"]
    assert viewer.get("/v1/instances?job_id=other").json() == []
    assert "hush" not in str((live, all_of_them))
    spot = viewer.get("/v1/offers").json()[0]
    assert (spot["offer_id"], spot["used"], spot["quota"]) == ("spot", 1, 4)
    # Half an hour and an hour at 0.36 USD.
    for by, group in (
        ("job", job_id),
        ("market", "spot"),
        ("zone", "local/here/here-a"),
        ("day", "2026-03-01"),
    ):
        costs = viewer.get(f"/v1/costs?by={by}").json()
        assert costs["total"] == {
            "usd": 0.54,
            "disk_usd": 0.0,
            "egress_usd": 0.0,
            "on_demand_usd": 1.08,
            "instance_seconds": 5400,
        }
        assert costs["groups"] == {group: costs["total"]}
    assert viewer.get(f"/v1/jobs/{job_id}").json()["cost"]["usd"] == 0.54
    assert viewer.get("/v1/costs?by=colour").status_code == 422


def test_what_a_crash_left_half_way_is_swept_at_the_next_start(
    tmp_path: Path, store: Store, deciders: Deciders
) -> None:
    service = make_service(tmp_path, store, deciders)
    kept = service.submitter.post("/v1/jobs", json=job_request()).json()["job_id"]
    Staged(service.jobs, "half-way", {"a": encoded()})
    assert len(folders(service)) == 2
    create_app(ServerSettings(jobs=service.jobs), deciders, store)
    assert folders(service) == [kept]


def test_a_disk_that_is_full_is_told_and_nothing_is_kept(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(uploads.Staged, "accept", full)
    response = service.submitter.post("/v1/jobs", json=job_request())
    assert response.status_code == 503
    assert "No space left" in one_line_error(response)
    assert folders(service) == []
    assert service.store.jobs.latest(10) == []


LONG_NAMES = ["x" * 201, "/".join("a" * 17)]
OUTSIDE = ["", "/etc/passwd", "../x", "a/../../x", "a//b", "a/", "./a", ".", "a\\b", "a\0b", "a\nb", " a"]
HIDDEN = ["a ", "a/b /c", "logs/a", "checkpoint", "flower/x", ".spotweave-upload.json"]


@pytest.mark.parametrize("name", OUTSIDE + HIDDEN + LONG_NAMES)
def test_names_that_would_leave_the_folder_or_hide_in_it_are_refused(name: str) -> None:
    with pytest.raises(UploadError, match="a file is called"):
        check_names({name: ""})


def test_a_file_cannot_be_a_folder_too() -> None:
    with pytest.raises(UploadError, match="'a' is a file and a folder"):
        check_names({"a": "", "a/b": ""})


@pytest.mark.real
@settings(max_examples=50, deadline=None)
@given(
    names=st.lists(
        st.text(st.sampled_from("ab./\\~ \0\u00e9-") | st.characters(codec="utf-8"), max_size=12),
        unique=True,
        max_size=4,
    )
)
def test_whatever_the_names_files_stay_in_the_jobs_folder(
    names: list[str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    files = {name: encoded(name.encode()) for name in names}
    try:
        check_names(files)
    except UploadError:
        return
    root = tmp_path_factory.mktemp("names")
    staged = Staged(root / "jobs", "job", files)
    staged.accept()
    found = {path for path in root.rglob("*") if path.is_file()}
    workdir = root / "jobs" / "job"
    assert found == {workdir / MANIFEST, *(workdir / name for name in names)}
    assert all((workdir / name).read_bytes() == name.encode() for name in names)
