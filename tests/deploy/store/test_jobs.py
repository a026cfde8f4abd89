"""Jobs and tasks."""

from __future__ import annotations

import pytest

from deploy.model.jobs import JobState, TaskKey
from deploy.model.tasks import Phase, TaskReport
from deploy.store.errors import NotFoundError, StoreError
from deploy.store.jobs import Job
from deploy.store.store import Store
from tests.deploy.store.cases import BATCH, FEDERATED, a_job, add_job
from tests.deploy.store.conftest import NOW, Place

MAIN = TaskKey("j1", "main")


def test_a_job_comes_back_as_it_was_kept_also_after_a_restart(place: Place) -> None:
    with place.open() as store:
        kept = add_job(store, request_id="r1", reason="waits for a place")
    with place.open() as store:
        assert store.jobs.get("j1") == kept == a_job(request_id="r1", reason="waits for a place")
        assert store.jobs.live() == [kept]


def test_a_repeated_request_gives_the_same_job_and_no_second_one(store: Store) -> None:
    first = add_job(store, "j1", request_id="r1")
    assert add_job(store, "j2", request_id="r1") == first
    others = add_job(store, "j3", request_id="r1", submitter="ben")
    assert others.job_id == "j3", "another submitter's is another"
    with pytest.raises(StoreError, match="submitted another job before"):
        add_job(store, "j4", FEDERATED, request_id="r1")
    assert [job.job_id for job in store.jobs.live()] == ["j1", "j3"]


def test_a_job_id_is_used_once(store: Store) -> None:
    add_job(store)
    with pytest.raises(StoreError, match="there is a job j1 already"):
        add_job(store)


def test_a_job_has_its_tasks_waiting_in_the_order_of_its_spec(store: Store) -> None:
    add_job(store, "j1", FEDERATED)
    tasks = store.tasks.of_job("j1")
    assert [task.key for task in tasks] == [TaskKey("j1", "client-one"), TaskKey("j1", "client-two")]
    assert all(task.attempt == 0 and task.phase is None and task.waiting_since_s == NOW for task in tasks)


def test_ends_are_final(store: Store) -> None:
    add_job(store)
    with store.transaction():
        assert store.jobs.set_state("j1", JobState.RUNNING, NOW + 1)
        assert not store.jobs.set_state("j1", JobState.RUNNING, NOW + 2)
        assert store.jobs.set_state("j1", JobState.CANCELLED, NOW + 3, "by ana")
        assert not store.jobs.set_state("j1", JobState.SUCCEEDED, NOW + 4)
        assert not store.jobs.set_state("j1", JobState.PENDING, NOW + 5)
    job = store.jobs.get("j1")
    assert (job.state, job.ended_s, job.reason) == (JobState.CANCELLED, NOW + 3, "by ana")
    assert store.jobs.live() == []
    assert store.tasks.waiting() == []


def test_what_is_not_there_is_said_in_one_line(store: Store) -> None:
    for call in (
        lambda: store.jobs.get("j9"),
        lambda: store.jobs.set_state("j9", JobState.RUNNING, NOW),
        lambda: store.jobs.count_user_failure("j9"),
        lambda: store.tasks.get(MAIN),
        lambda: store.tasks.begin(MAIN, [], NOW),
        lambda: store.tasks.set_instances(MAIN, []),
    ):
        with pytest.raises(NotFoundError, match=r"\A.+\Z"), store.transaction():
            call()


def test_listing_and_counting(store: Store) -> None:
    for number in range(5):
        add_job(store, f"j{number}", submitted_s=NOW + number)
    with store.transaction():
        store.jobs.set_state("j0", JobState.FAILED, NOW)
        assert store.jobs.count_user_failure("j1") == 1
        assert store.jobs.count_user_failure("j1") == 2
    assert [job.job_id for job in store.jobs.latest(3)] == ["j4", "j3", "j2"]
    assert [job.job_id for job in store.jobs.latest(3, {JobState.FAILED})] == ["j0"]
    none = dict.fromkeys(JobState, 0)
    assert store.jobs.counts() == {**none, JobState.PENDING: 4, JobState.FAILED: 1}


def test_a_lost_attempt_waits_again_from_what_was_saved(store: Store) -> None:
    add_job(store)
    with store.transaction():
        assert store.tasks.begin(MAIN, ["i1", "i2"], NOW + 1) == 1
    told = TaskReport(MAIN, 1, Phase.RUNNING, 0.5, 0.25, "ok", 3, 1, 9.5, details={"url": "http://x"})
    with store.transaction():
        assert store.tasks.report(told, NOW + 2)
    task = store.tasks.get(MAIN)
    assert (task.phase, task.progress, task.saved) == (Phase.RUNNING, 0.5, 0.25)
    assert (task.executions_done, task.misses) == (3, 1)
    assert (task.instances, task.reported_s, task.waiting_since_s) == (("i1", "i2"), NOW + 2, None)
    assert task.details == {"url": "http://x"}
    with store.transaction():
        assert store.tasks.requeue(MAIN, NOW + 3, lost=True, not_before_s=NOW + 33).losses == 1
        assert store.tasks.begin(MAIN, ["i3"], NOW + 40) == 2
        assert store.tasks.requeue(MAIN, NOW + 50, lost=True).losses == 2
    task = store.tasks.get(MAIN)
    assert (task.phase, task.instances, task.attempt, task.progress) == (None, (), 2, 0.25)
    with store.transaction():
        assert store.tasks.begin(MAIN, ["i4"], NOW + 55) == 3
        after = store.tasks.requeue(MAIN, NOW + 60, failed=True)
    assert (after.losses, after.failures) == (2, 1)
    assert after == store.tasks.get(MAIN)
    with store.transaction():
        store.tasks.begin(MAIN, ["i5"], NOW + 65)
        assert store.tasks.report(TaskReport(MAIN, 4, Phase.RUNNING, 0.5, 0.3), NOW + 70)
    assert (store.tasks.get(MAIN).losses, store.tasks.get(MAIN).failures) == (0, 0), "it saved something"


def test_only_what_an_attempt_saved_makes_earlier_losses_forgotten(store: Store) -> None:
    add_job(store)
    with store.transaction():
        for losses in (1, 2):
            store.tasks.begin(MAIN, ["i1"], NOW)
            assert store.tasks.requeue(MAIN, NOW, lost=True).losses == losses
        store.tasks.begin(MAIN, ["i1"], NOW)
        assert store.tasks.report(TaskReport(MAIN, 3, Phase.RUNNING, progress=0.5), NOW)
        assert store.tasks.get(MAIN).losses == 2
        assert store.tasks.report(TaskReport(MAIN, 3, Phase.RUNNING, progress=0.5, saved=0.1), NOW)
        assert store.tasks.get(MAIN).losses == 0
        assert store.tasks.requeue(MAIN, NOW, lost=True).losses == 1


def test_reports_of_other_attempts_and_after_the_end_are_not_kept(store: Store) -> None:
    add_job(store)
    with store.transaction():
        assert not store.tasks.report(TaskReport(MAIN, 0, Phase.RUNNING), NOW)
        store.tasks.begin(MAIN, ["i1"], NOW)
        store.tasks.requeue(MAIN, NOW, lost=True)
        assert not store.tasks.report(TaskReport(MAIN, 1, Phase.RUNNING), NOW), "it waits"
        store.tasks.begin(MAIN, ["i2"], NOW)
        assert not store.tasks.report(TaskReport(MAIN, 1, Phase.SUCCEEDED), NOW), "a lost attempt cannot win"
        assert store.tasks.report(TaskReport(MAIN, 2, Phase.SUCCEEDED, 1.0), NOW)
        assert not store.tasks.report(TaskReport(MAIN, 2, Phase.LOST), NOW), "ends are final"
    assert store.tasks.get(MAIN).phase is Phase.SUCCEEDED


@pytest.mark.parametrize("message", ["nul \0", "surrogate \udc80", "x" * 5000, "🙂" * 4001])
def test_any_message_of_a_users_program_can_be_kept(store: Store, message: str) -> None:
    add_job(store)
    with store.transaction():
        store.tasks.begin(MAIN, ["i1"], NOW)
        store.tasks.report(TaskReport(MAIN, 1, Phase.FAILED, message=message, details={"a\0": message}), NOW)
        store.jobs.set_state("j1", JobState.FAILED, NOW, message)
    kept = store.tasks.get(MAIN).message
    assert kept[:4] == message[:4]
    assert len(kept) <= 4000
    assert store.jobs.get("j1").reason == kept


def test_many_live_jobs_are_read_in_order(place: Place) -> None:
    with place.open() as store:
        with store.transaction():
            for number in range(1_000):
                store.jobs.add(a_job(f"j{number:05}", BATCH, submitted_s=NOW - number))
        jobs: list[Job] = list(store.jobs.live())
        assert [job.job_id for job in jobs] == [f"j{number:05}" for number in reversed(range(1_000))]
        assert [task.key.job_id for task in store.tasks.waiting()] == [job.job_id for job in jobs]
