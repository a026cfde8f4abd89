"""What `/v1/overview` says of hand-made content, and the files of the page that shows it."""

from __future__ import annotations

import re
from dataclasses import replace
from importlib.resources import files
from typing import Any

import pytest

from spotweave.deploy.dashboard import routes as module
from spotweave.deploy.dashboard.routes import EXAMPLE, MAX_TEXT, Overview
from spotweave.deploy.model.instances import InstanceState
from spotweave.deploy.model.jobs import JobState, TaskKey
from spotweave.deploy.model.tasks import Phase, TaskReport
from spotweave.deploy.security.tokens import Role
from spotweave.deploy.store.intents import CandidateRecord, Mode
from tests.deploy.scheduler.worlds import offer
from tests.deploy.server.service import NOW, Service, decide
from tests.deploy.store.cases import BATCH, FEDERATED, SPOT, add_job, rent, report, request
from tests.deploy.workflows import step, workflow

KEY = TaskKey("j1", "main")


def seen(service: Service, path: str = "/v1/overview") -> Overview:
    response = service.as_(Role.ADMIN).get(path)
    assert response.status_code == 200, response.text
    return Overview.model_validate_json(response.content)


CANDIDATES = (
    CandidateRecord("spot", {"money": 0.2}, 0.3, True, "only this is in time"),
    CandidateRecord(None, {"money": 0.1}, None, True, ""),
    CandidateRecord("full", {"money": 0.15}, 0.5, False, "no capacity"),
    CandidateRecord("sure", {"money": 0.05}, 1.0, True, ""),
)


def test_an_empty_store(service: Service) -> None:
    found = seen(service)
    assert (found.jobs, found.instances, found.decisions, found.events) == ([], [], [], [])
    assert found.counts == dict.fromkeys(JobState, 0)
    assert (found.cost.usd, found.mode, found.scheduler, found.last_pass_s) == (0.0, None, True, NOW)
    assert (found.policy, found.federated_policy) == ("mtdqn", "round_cost")
    assert found.deployment == service.store.deployment_id


def test_a_job_with_an_interrupted_attempt_and_one_that_runs(service: Service) -> None:
    store = service.store
    add_job(store, state=JobState.RUNNING)
    rent(store, "i1")
    report(store, "i1", InstanceState.TERMINATED, ended_s=NOW + 200, by_provider=True)
    request(store, "i2", replace(SPOT, offer_id="rack", market="owned"), now_s=NOW + 210)
    report(store, "i2", launched_s=NOW + 211)
    with store.transaction():
        store.instances.ready("i2", NOW + 230)
        store.tasks.begin(KEY, ["i1"], NOW)
        attempt = store.tasks.begin(KEY, ["i2"], NOW + 210)
        store.tasks.report_all(
            [TaskReport(KEY, attempt, Phase.RUNNING, progress=0.4, message="stage 3")], NOW
        )
    service.clock.sleep(500)
    found = seen(service)
    (job,) = found.jobs
    assert job.deadline_s == NOW + 900
    assert (job.progress, job.interruptions, job.tasks, job.state) == (0.4, 1, 1, JobState.RUNNING)
    (lane,) = job.lanes
    assert (lane.attempt, lane.phase, lane.message) == (2, Phase.RUNNING, "stage 3")
    one, two = (
        (s.offer_id, s.market, s.requested_s, s.ready_s, s.ended_s, s.interruptions) for s in lane.spans
    )
    assert one == (SPOT.offer_id, "spot", NOW, None, NOW + 200, [NOW + 200])
    assert two == ("rack", "owned", NOW + 210, NOW + 230, None, [])
    # The first was free, as the provider took it within its first hour; the other has run for 289 s.
    assert job.cost.usd == pytest.approx(289 * 0.036 / 3600, abs=2e-6)
    assert found.cost == job.cost
    assert [one.instance_id for one in found.instances] == ["i2"]
    assert found.instances_live == 1


def test_each_client_has_a_lane(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    add_job(service.store, "fl", FEDERATED)
    (job,) = seen(service).jobs
    assert [lane.task for lane in job.lanes] == ["client-one", "client-two"]
    assert (job.deadline_s, job.tasks) == (None, 2)
    assert job.lanes[0].waiting_since_s == NOW
    monkeypatch.setattr(module, "LANES", 1)
    (job,) = seen(service).jobs
    assert ([lane.task for lane in job.lanes], job.tasks) == (["client-one"], 2)


def test_steps_of_a_workflow_show_what_they_wait_for(service: Service) -> None:
    add_job(service.store, "flow", workflow(step("one"), step("two"), step("all", "two-out one-out")))
    (job,) = seen(service).jobs
    assert [(lane.task, lane.after, lane.message) for lane in job.lanes] == [
        ("one", [], ""),
        ("two", [], ""),
        ("all", ["two", "one"], "waits for two, one"),
    ]
    # For ever, until they have succeeded: there is no such moment.
    assert (job.lanes[2].not_before_s, job.lanes[2].waiting_since_s) == (None, None)


def test_so_many_jobs_of_each_group(service: Service) -> None:
    for k in range(4):
        add_job(service.store, f"run-{k}", state=JobState.RUNNING, submitted_s=NOW + k)
        add_job(service.store, f"wait-{k}", submitted_s=NOW + k)
        ended = JobState.FAILED if k % 2 else JobState.SUCCEEDED
        add_job(service.store, f"end-{k}", state=ended, submitted_s=NOW + k, ended_s=NOW + 50)
    found = seen(service, "/v1/overview?limit=2")
    assert [job.job_id for job in found.jobs] == ["run-3", "run-2", "wait-0", "wait-1", "end-3", "end-2"]
    assert sum(found.counts.values()) == 12
    assert [job.progress for job in found.jobs if job.state is JobState.SUCCEEDED] == [1.0]


def test_decisions_show_the_chosen_the_next_best_and_why_the_net_stepped_in(service: Service) -> None:
    work = BATCH.work.model_copy(update={"deadline_s": None})
    add_job(service.store, spec=BATCH.model_copy(update={"work": work}))
    decide(service.store, "j1", *CANDIDATES, mode=Mode.DRY_RUN)
    found = seen(service)
    assert found.jobs[0].deadline_s is None
    (one,) = found.decisions
    assert (one.chosen, one.values, one.reason) == ("spot", {"money": 0.2}, "only this is in time")
    assert (one.next_best, one.next_values) == ("sure", {"money": 0.05})
    assert found.mode is Mode.DRY_RUN, "of the latest decision, as nobody said which"


def test_offers_in_use_come_first_and_then_what_can_be_had(service: Service) -> None:
    add_job(service.store)
    request(service.store, "i1", offer("used"))
    service.scheduler.shown = [
        offer("gone", price_usd_hour=0.1, available=False, reason="no capacity"),
        offer("dear", price_usd_hour=0.9),
        offer("cheap", price_usd_hour=0.2),
        offer("used", price_usd_hour=0.5),
    ]
    found = seen(service)
    shown = [(one.offer_id, one.used) for one in found.offers]
    assert shown == [("used", 1), ("cheap", 0), ("dear", 0), ("gone", 0)]
    assert found.offers[3].reason == "no capacity"


def test_long_messages_are_cut_events_come_the_newest_first_and_no_secrets(service: Service) -> None:
    add_job(service.store)
    request(service.store, "i1")
    with service.store.transaction():
        for kind in ("a.first", "b.second"):
            service.store.events.add(kind, NOW, {"n": 1}, job_id="j1")
        service.store.jobs.set_state("j1", JobState.FAILED, NOW, "x" * 3000)
    found = seen(service)
    assert found.jobs[0].reason == "x" * MAX_TEXT
    assert [one.kind for one in found.events][:2] == ["b.second", "a.first"]
    for role in Role:
        answer = service.as_(role).get("/v1/overview")
        assert answer.status_code == 200
        assert "secret of i1" not in answer.text
        assert "/srv/j1" not in answer.text


def without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: without_nulls(item) for name, item in value.items() if item is not None}
    return [without_nulls(item) for item in value] if isinstance(value, list) else value


def test_openapi_describes_it_with_an_example_that_is_true(service: Service) -> None:
    described = service.as_(None).get("/openapi.json").json()
    (shown,) = described["components"]["schemas"]["Overview"]["examples"]
    assert shown == without_nulls(EXAMPLE), "FastAPI leaves nulls out of descriptions"
    assert Overview.model_validate(EXAMPLE).model_dump(mode="json") == EXAMPLE
    answer = described["paths"]["/v1/overview"]["get"]["responses"]["200"]["content"]["application/json"]
    assert answer["schema"] == {"$ref": "#/components/schemas/Overview"}
    assert "/" not in described["paths"]


PAGE = files("spotweave.deploy.dashboard").joinpath("page")
NAMES = sorted(file.name for file in PAGE.iterdir())


def test_every_file_and_no_other_is_served_to_everyone_with_a_strict_policy(service: Service) -> None:
    kinds = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
    for name in NAMES:
        response = service.as_(None).get("/" if name == "index.html" else f"/dashboard/{name}")
        assert response.status_code == 200, name
        assert response.content == PAGE.joinpath(name).read_bytes(), name
        (policy,) = response.headers.get_list("Content-Security-Policy")
        assert "default-src 'self'" in policy
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert response.headers["Cross-Origin-Opener-Policy"] == "same-origin"
        assert response.headers["Content-Type"].startswith(kinds[name.rpartition(".")[2]]), name
    for path in ("/dashboard/", "/dashboard/index.html", "/dashboard/../routes.py", "/dashboard/routes.py"):
        assert service.as_(None).get(path).status_code == 404


@pytest.mark.parametrize("name", NAMES)
def test_nothing_is_asked_of_elsewhere_or_parses_html_or_mixes_scripts_into_it(name: str) -> None:
    text = PAGE.joinpath(name).read_text()
    assert set(re.findall(r"https?://[^\s\"')]+", text)) <= {"http://www.w3.org/2000/svg"}
    assert not re.search(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function", text
    )
    if name == "index.html":
        assert re.findall(r"<script[^>]*>(.*?)</script>", text, re.DOTALL) == [""]
        assert not re.search(r"<style|\sstyle=|\son[a-z]+=", text)
