"""Jobs over HTTP: submission, listing, cancelling, explanation."""

from __future__ import annotations

import stat
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spotweave.deploy.model.instances import InstanceState
from spotweave.deploy.model.jobs import JobSpec
from spotweave.deploy.runners.flower import app
from spotweave.deploy.runners.flower.inspecting import inspect
from spotweave.deploy.server import bodies
from spotweave.deploy.server.app import create_app
from spotweave.deploy.server.bodies import MANIFEST, Staged, UploadError, check_names
from spotweave.deploy.server.context import ServerSettings
from spotweave.deploy.server.deciding import Deciders
from spotweave.deploy.store.intents import CandidateRecord
from tests.deploy.scheduler.worlds import offer
from tests.deploy.server.service import (
    NOW,
    SCRIPT,
    Service,
    decide,
    encoded,
    failing,
    job_request,
    one_line_error,
)
from tests.deploy.store.cases import rent


def flower(app: str = "app", **files: str) -> dict[str, Any]:
    work = {"kind": "flower", "app": app, "rounds": 3, "clients": [{"name": "one"}, {"name": "two"}]}
    return {"spec": {"name": "digits", "work": work}, "files": files}


def test_a_job_and_its_files_are_kept_before_it_is_there(service: Service) -> None:
    files = {"hello.py": encoded(SCRIPT), "lib/words.txt": encoded(b"\0\xff")}
    response = service.submit(files=files)
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
    for app_folder, prefix in (("app", "app/"), (".", "")):
        files = {f"{prefix}pyproject.toml": encoded(), f"{prefix}model.py": encoded()}
        response = service.submitter.post("/v1/jobs", json=flower(app_folder, **files))
        assert response.status_code == 201
        assert [task["task"] for task in response.json()["tasks"]] == ["client-one", "client-two"]


def test_the_same_request_again_is_the_same_job(service: Service) -> None:
    request = job_request(request_id="r-1")
    first, again = (service.submitter.post("/v1/jobs", json=request) for _ in range(2))
    assert (first.status_code, again.status_code) == (201, 200)
    assert first.json() == again.json()
    assert service.folders() == [first.json()["job_id"]]
    # A runner may change what it was given; the request is still the same.
    (service.jobs / first.json()["job_id"] / "hello.py").write_bytes(b"changed")
    assert service.submitter.post("/v1/jobs", json=request).status_code == 200
    other_files = job_request(request_id="r-1", files={"hello.py": encoded(b"other")})
    other_spec = job_request(request_id="r-1")
    other_spec["spec"]["name"] = "other"
    for changed in (other_files, other_spec):
        refused = service.submitter.post("/v1/jobs", json=changed)
        assert "use a new request id" in one_line_error(refused, 409)
    assert service.another().post("/v1/jobs", json=request).status_code == 201
    assert len(service.folders()) == 2


def test_what_a_runner_refuses_is_refused_before_anything_is_kept(service: Service) -> None:
    service.scheduler.refusal = "{folder}/hello.py\nis not Python: correct it"
    response = service.submit()
    assert one_line_error(response, 422) == "hello.py is not Python: correct it"
    assert service.folders() == []


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
def test_odd_projects_are_refused(
    unchanged: Service, project: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    def check(spec: JobSpec, folder: str) -> None:
        app.check(spec, Path(folder), lambda at, name: inspect(at / name, name))

    monkeypatch.setattr(unchanged.scheduler, "check", check)
    response = unchanged.submitter.post("/v1/jobs", json=flower(**{"app/pyproject.toml": encoded(project)}))
    one_line_error(response, 422)
    assert unchanged.folders() == []


NO_OFFER = "no offer can run this job: spot has "
NONE_FOR_LARGE = "no offer can run task 'large' of this job: spot has "
SMALL, LARGE = ({"name": name, "command": ["date"], "minutes": 10} for name in ("small", "large"))


def bag(**large: Any) -> dict[str, Any]:
    return {"kind": "bag", "tasks": [SMALL, {**LARGE, **large}], "deadline_s": 1200.0}


@pytest.mark.parametrize(
    ("work", "resources", "message"),
    [
        ({"deadline_s": 600.0, "standard_s": 600.0}, {}, "the deadline of 600 s cannot be met: the fastest"),
        ({}, {"vcpus": 64}, NO_OFFER + "4 vCPUs, the job needs 64"),
        ({}, {"gpu": "H100"}, "has no GPU, the job needs H100"),
        ({}, {"gpu": ["L4", "T4"], "gpus": 2}, "has no GPU, the job needs L4 or T4"),
        ({}, {"gpus": 2}, "has no GPU, the job needs 2 GPUs"),
        (bag(gpu_memory_gib=16), {}, NONE_FOR_LARGE + "no GPU, the job needs a GPU"),
        (bag(vcpus=64), {}, NONE_FOR_LARGE + "4 vCPUs, the job needs 64"),
        (bag(memory_gib=9.0), {}, NONE_FOR_LARGE + "8 GiB, the job needs 9"),
        (bag(minutes=30), {}, "1200 s cannot be met: the fastest offer, spot, needs about 1860 s"),
    ],
)
def test_a_job_that_no_offer_can_run_is_refused(
    unchanged: Service, work: dict[str, Any], resources: dict[str, Any], message: str
) -> None:
    request = job_request()
    request["spec"]["work"] = work if "kind" in work else {**request["spec"]["work"], **work}
    request["spec"]["resources"] = resources
    assert message in one_line_error(unchanged.submit(**request), 422)


def test_a_bag_says_how_many_of_its_tasks_are_done(service: Service) -> None:
    made = service.submit(files={}, spec={"name": "many", "work": bag()})
    assert made.status_code == 201
    assert (made.json()["tasks_done"], made.json()["tasks_all"]) == (0, 2)
    assert service.viewer.get("/v1/jobs").json()[0]["tasks_all"] == 2


def test_a_deadline_that_one_offer_can_meet_is_taken_and_any_while_none_is_known(service: Service) -> None:
    def submit(deadline_s: float) -> int:
        request = job_request()
        request["spec"]["work"].update({"deadline_s": deadline_s, "standard_s": 600.0})
        return service.submit(**request).status_code

    # 60 s of launch and 600 of work at speed 1.
    assert (submit(661.0), submit(361.0)) == (201, 422)
    service.scheduler.shown.append(offer("fast", speed=2.0, available=False))
    assert submit(361.0) == 201
    service.scheduler.shown = []
    assert submit(1.0) == 201


def test_jobs_are_listed_the_newest_first_and_by_state(service: Service) -> None:
    ids = []
    for _ in range(3):
        ids.append(service.submitted())
        service.clock.sleep(1.0)
    service.submitter.delete(f"/v1/jobs/{ids[1]}")
    for query, found in (("", ids[::-1]), ("limit=1", ids[2:]), ("state=cancelled&state=failed", [ids[1]])):
        assert [job["job_id"] for job in service.viewer.get(f"/v1/jobs?{query}").json()] == found


def test_cancelling_twice_is_cancelling_once(service: Service) -> None:
    job_id = service.submitted()
    first, again = (service.submitter.delete(f"/v1/jobs/{job_id}") for _ in range(2))
    assert (first.status_code, again.status_code) == (200, 200)
    assert again.json()["state"] == "cancelled"
    kinds = [event.kind for event in service.store.events.after(0, 10, job_id=job_id)]
    assert kinds == ["job.submitted", "job.cancelled"]


def test_explain_shows_decisions_and_events_of_the_job(service: Service) -> None:
    job_id, other = (service.submitted() for _ in "ab")
    for one in (job_id, other):
        spot, wait = CandidateRecord("spot", {"money": 1.5}, 0.3), CandidateRecord(None, {"money": -0.5})
        decide(service.store, one, spot, wait)
    viewer = service.viewer
    shown = viewer.get(f"/v1/jobs/{job_id}/explain").json()
    assert shown["job"]["job_id"] == job_id
    assert [event["kind"] for event in shown["events"]] == ["job.submitted"]
    (decision,) = shown["decisions"]
    assert (decision["job_id"], decision["chosen"]) == (job_id, "spot")
    assert [one["values"] for one in decision["candidates"]] == [{"money": 1.5}, {"money": -0.5}]
    assert viewer.get(f"/v1/decisions?job_id={job_id}").json() == [decision]


def test_instances_offers_and_costs_are_those_of_the_store_without_secrets(service: Service) -> None:
    job_id = service.submitted()
    rented = replace(service.scheduler.shown[0], price_usd_hour=0.36, on_demand_usd_hour=0.72)
    for name in ("i-1", "i-2"):
        rent(service.store, name, rented, job_id, state=InstanceState.RUNNING, offer_id=rented.offer_id)
    with service.store.transaction():
        service.store.instances.ended("i-1", NOW + 1800.0)
    service.clock.sleep(3600.0)
    viewer = service.viewer
    both = ["i-1", "i-2"]
    of_job = f"ended=true&job_id={job_id}"
    for query, names in (("", ["i-2"]), ("ended=true", both), (of_job, both), ("job_id=other", [])):
        shown = viewer.get(f"/v1/instances?{query}").json()
        assert sorted(one["instance_id"] for one in shown) == names
        assert "secret of" not in str(shown)
    spot = viewer.get("/v1/offers").json()[0]
    assert (spot["offer_id"], spot["used"], spot["quota"]) == ("spot", 1, 4)
    # Half an hour and an hour at 0.36 USD.
    groups = {"job": job_id, "market": "spot", "zone": "local/here/here-a", "day": "2026-03-01"}
    total = {"usd": 0.54, "disk_usd": 0.0, "egress_usd": 0.0, "on_demand_usd": 1.08, "instance_seconds": 5400}
    for by, group in groups.items():
        costs = viewer.get(f"/v1/costs?by={by}").json()
        assert (costs["total"], costs["groups"]) == (total, {group: total})
    assert viewer.get(f"/v1/jobs/{job_id}").json()["cost"]["usd"] == 0.54


def test_what_a_crash_left_half_way_is_swept_at_the_next_start(service: Service, deciders: Deciders) -> None:
    kept = service.submitted()
    Staged(service.jobs, "half-way", {"a": encoded()})
    assert len(service.folders()) == 2
    create_app(ServerSettings(jobs=service.jobs), deciders, service.store)
    assert service.folders() == [kept]


def test_a_full_disk_is_told_and_nothing_is_kept(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies.Staged, "accept", failing(OSError(28, "No space left on device")))
    response = service.submit()
    assert "No space left" in one_line_error(response, 503)
    assert service.folders() == []
    assert service.store.jobs.latest(10) == []


LONG_NAMES = ["x" * 201, "/".join("a" * 17)]
OUTSIDE = ["", "/etc/passwd", "../x", "a/../../x", "a//b", "a/", "./a", ".", "a\\b", "a\0b", "a\nb", " a"]
NAMING = st.sampled_from("ab./\\~ \0\u00e9-") | st.characters(codec="utf-8")
HIDDEN = ["a ", "a/b /c", "logs/a", "checkpoint", "flower/x", ".spotweave-upload.json"]


@pytest.mark.parametrize("name", OUTSIDE + HIDDEN + LONG_NAMES)
def test_names_that_would_leave_the_folder_or_hide_in_it_are_refused(name: str) -> None:
    with pytest.raises(UploadError, match="a file is called"):
        check_names({name: ""})
    with pytest.raises(UploadError, match="'a' is a file and a folder"):
        check_names({"a": "", "a/b": ""})


@pytest.mark.real
@settings(max_examples=50)
@given(names=st.lists(st.text(NAMING, max_size=12), unique=True, max_size=4))
def test_files_stay_in_the_jobs_folder(names: list[str], tmp_path_factory: pytest.TempPathFactory) -> None:
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
