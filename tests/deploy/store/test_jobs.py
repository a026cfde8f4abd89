"""Jobs and tasks."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from sqlalchemy import text

from spotweave.deploy.model.instances import InstanceState
from spotweave.deploy.model.jobs import JobState, TaskKey
from spotweave.deploy.model.tasks import Phase, TaskReport
from spotweave.deploy.security.keys import DeploymentKey, SecurityError
from spotweave.deploy.store.errors import NotFoundError, StoreError
from spotweave.deploy.store.store import Store
from tests.deploy.store.cases import FEDERATED, SPOT, a_job, add_job, execute, rent, report, request
from tests.deploy.store.conftest import NOW, Place

MAIN = TaskKey("j1", "main")


def test_a_job_comes_back_as_it_was_kept_also_after_a_restart(place: Place) -> None:
    with place.open() as store:
        kept = add_job(store, request_id="r1", reason="waits for a place")
    with place.open() as store:
        assert store.jobs.get("j1") == kept == a_job(request_id="r1", reason="waits for a place")
        assert store.jobs.live() == [kept]


def test_a_repeated_request_gives_the_same_job_and_ids_are_used_once(store: Store) -> None:
    first = add_job(store, "j1", request_id="r1")
    assert add_job(store, "j2", request_id="r1") == first
    others = add_job(store, "j3", request_id="r1", submitter="ben")
    assert others.job_id == "j3", "another submitter's is another"
    with pytest.raises(StoreError, match="submitted another job before"):
        add_job(store, "j4", FEDERATED, request_id="r1")
    with pytest.raises(StoreError, match="there is a job j1 already"):
        add_job(store)
    assert [job.job_id for job in store.jobs.live()] == ["j1", "j3"]


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
        add_job(store, f"j{number}", submitted_s=NOW - number)
    assert [job.job_id for job in store.jobs.live()] == ["j4", "j3", "j2", "j1", "j0"]
    assert [task.key.job_id for task in store.tasks.waiting()] == ["j4", "j3", "j2", "j1", "j0"]
    with store.transaction():
        store.jobs.set_state("j0", JobState.FAILED, NOW)
        assert store.jobs.count_user_failure("j1") == 1
        assert store.jobs.count_user_failure("j1") == 2
    assert [job.job_id for job in store.jobs.latest(3)] == ["j0", "j1", "j2"]
    assert [job.job_id for job in store.jobs.latest(3, {JobState.FAILED})] == ["j0"]
    none = dict.fromkeys(JobState, 0)
    assert store.jobs.counts() == {**none, JobState.PENDING: 4, JobState.FAILED: 1}


def test_a_lost_attempt_waits_again_from_what_was_saved(store: Store) -> None:
    add_job(store)
    with store.transaction():
        assert store.tasks.begin(MAIN, ["i1", "i2"], NOW + 1) == 1
    told = TaskReport(MAIN, 1, Phase.RUNNING, 0.5, 0.25, "ok", 3, 1, 9.5, details={"url": "http://x"})
    with store.transaction():
        assert store.tasks.report_all([told], NOW + 2)
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
        assert store.tasks.report_all([TaskReport(MAIN, 4, Phase.RUNNING, progress=0.5)], NOW + 69)
        assert store.tasks.get(MAIN).losses == 2, "it has saved nothing yet"
        assert store.tasks.report_all([TaskReport(MAIN, 4, Phase.RUNNING, 0.5, 0.3)], NOW + 70)
    assert (store.tasks.get(MAIN).losses, store.tasks.get(MAIN).failures) == (0, 0), "it saved something"


def test_reports_of_other_attempts_and_after_the_end_are_not_kept(store: Store) -> None:
    add_job(store)
    with store.transaction():
        assert not store.tasks.report_all([TaskReport(MAIN, 0, Phase.RUNNING)], NOW)
        store.tasks.begin(MAIN, ["i1"], NOW)
        store.tasks.requeue(MAIN, NOW, lost=True)
        assert not store.tasks.report_all([TaskReport(MAIN, 1, Phase.RUNNING)], NOW), "it waits"
        store.tasks.begin(MAIN, ["i2"], NOW)
        assert not store.tasks.report_all([TaskReport(MAIN, 1, Phase.SUCCEEDED)], NOW), (
            "a lost attempt cannot win"
        )
        assert store.tasks.report_all([TaskReport(MAIN, 2, Phase.SUCCEEDED, 1.0)], NOW)
        assert not store.tasks.report_all([TaskReport(MAIN, 2, Phase.LOST)], NOW), "ends are final"
    assert store.tasks.get(MAIN).phase is Phase.SUCCEEDED


@pytest.mark.parametrize("message", ["nul \0", "surrogate \udc80", "x" * 5000, "🙂" * 4001])
def test_any_message_of_a_users_program_can_be_kept(store: Store, message: str) -> None:
    add_job(store)
    with store.transaction():
        store.tasks.begin(MAIN, ["i1"], NOW)
        store.tasks.report_all(
            [TaskReport(MAIN, 1, Phase.FAILED, message=message, details={"a\0": message})], NOW
        )
        store.jobs.set_state("j1", JobState.FAILED, NOW, message)
    kept = store.tasks.get(MAIN).message
    assert kept[:4] == message[:4]
    assert len(kept) <= 4000
    assert store.jobs.get("j1").reason == kept


# Instances: their life as providers and node agents tell it.


def test_an_instance_comes_back_as_it_was_asked_for_also_after_a_restart(place: Place) -> None:
    with place.open() as store:
        add_job(store)
        asked = request(store)
    with place.open() as store:
        known = store.instances.get("i1")
        assert known == asked == store.instances.by_client_token("token-i1")
        assert (known.offer, known.node_token, known.state) == (SPOT, "secret of i1", InstanceState.REQUESTED)
        assert store.instances.by_client_token("token-i2") is None


def test_the_life_of_an_instance(store: Store) -> None:
    told = rent(store, state=InstanceState.RUNNING, launched_s=NOW + 5, now_s=NOW + 20)
    assert told.state is InstanceState.LAUNCHING, "its node agent has not answered"
    where = (told.provider_id, told.address, told.port)
    assert (*where, told.launched_s) == ("aws-i1", "127.0.1.1", 7000, NOW + 5)
    with store.transaction():
        assert store.instances.ready("i1", NOW + 30)
        assert not store.instances.ready("i1", NOW + 31)
        assert store.instances.noticed("i1", NOW + 150)
        assert not store.instances.noticed("i1", NOW + 150)
        assert store.instances.noticed("i1", None, rebalance=True)
    told = report(store, state=InstanceState.RUNNING, launched_s=NOW + 5, now_s=NOW + 40)
    assert told.state is InstanceState.RUNNING
    assert (told.ready_s, told.notice_s, told.rebalance) == (NOW + 30, NOW + 150, True)
    with store.transaction():
        assert store.instances.stopping("i1")
        assert not store.instances.stopping("i1")
    gone = InstanceState.TERMINATED
    told = report(store, "i1", gone, NOW + 5, now_s=NOW + 160, ended_s=NOW + 149, by_provider=True)
    assert (told.state, told.ended_s, told.by_provider) == (gone, NOW + 149, True)
    assert store.instances.live() == []
    assert store.instances.of_job("j1") == [told] == store.instances.latest(5)


@pytest.mark.real
def test_states_never_go_back_whatever_order_reports_come_in(store: Store) -> None:
    add_job(store)
    rank = list(InstanceState)
    for number, order in enumerate(itertools.permutations(rank[1:])):
        name = f"i{number}"
        request(store, name)
        with store.transaction():
            store.instances.ready(name, NOW)
        states = [report(store, name, state=state).state for state in order]
        assert states == sorted(states, key=rank.index)
        assert states[-1] is InstanceState.TERMINATED


def test_an_end_that_is_known_stays_as_it_was(store: Store) -> None:
    rent(store, launched_s=NOW)
    report(store, state=InstanceState.TERMINATED, ended_s=NOW + 100, by_provider=True)
    paid = store.costs.of_job("j1", NOW + 900)
    with store.transaction():
        assert not store.instances.ended("i1", NOW + 500)
        assert not store.instances.stopping("i1")
        assert not store.instances.noticed("i1", NOW + 150)
        assert not store.instances.ready("i1", NOW + 500)
    known = store.instances.get("i1")
    assert (known.state, known.ended_s, known.by_provider) == (InstanceState.TERMINATED, NOW + 100, True)
    assert store.costs.of_job("j1", NOW + 900) == paid


def test_an_instance_of_no_job_with_no_price_or_of_before_is_refused(store: Store) -> None:
    with pytest.raises(Exception, match=r"(?i)foreign key"):
        request(store, job_id="j9")
    add_job(store)
    with pytest.raises(ValueError, match="expected 0 or more"):
        request(store, offer=replace(SPOT, price_usd_hour=float("nan")))
    with pytest.raises(NotFoundError, match="no instance 'i1'"):
        store.instances.get("i1")
    request(store)
    with pytest.raises(StoreError, match="used once"):
        request(store)
    request(store, "i2")


def test_node_tokens_cannot_be_read_in_the_database_or_a_log_nor_moved(place: Place) -> None:
    with place.open() as store:
        add_job(store)
        request(store, "i1")
        request(store, "i2")
        assert "secret" not in repr(store.instances.get("i1"))
        with store._database.read() as connection:
            assert b"secret" not in bytes(connection.scalar(text("SELECT node_token FROM instances")))
        execute(place, "UPDATE instances SET node_token = (SELECT node_token FROM instances LIMIT 1)")
        assert store.instances.get("i1").node_token == "secret of i1"
        with pytest.raises(SecurityError, match="instance i2 cannot be decrypted"):
            store.instances.get("i2")


def test_another_deployments_key_is_refused(place: Place) -> None:
    place.open().close()
    place.key_file.unlink()
    with pytest.raises(SecurityError, match="cannot read the key file"):
        place.open()
    DeploymentKey.load(place.key_file, create=True)
    with pytest.raises(StoreError, match="does not belong to the database"):
        place.open()


def test_the_live_instances_of_one_provider(store: Store) -> None:
    add_job(store)
    elsewhere = request(store, "i1", replace(SPOT, provider="gcp"))
    here = request(store, "i2")
    request(store, "i3")
    with store.transaction():
        store.instances.ended("i3", NOW + 1)
    assert list(store.instances.live("gcp")) == [elsewhere]
    assert list(store.instances.live(SPOT.provider)) == [here]
    assert list(store.instances.live()) == [elsewhere, here]


def test_the_first_certificate_of_a_node_stays(store: Store) -> None:
    add_job(store)
    request(store, "i1")
    request(store, "i2")
    with store.transaction():
        assert store.instances.joined("i1", "shown when it joined")
        assert store.instances.joined("i1", "shown when it joined")
        assert not store.instances.joined("i1", "shown by another")
    report(store, "i1")
    report(store, "i2", certificate="its provider's")
    report(store, "i2", certificate="another")
    report(store, "i2")
    assert store.instances.get("i1").certificate == "shown when it joined"
    assert store.instances.get("i2").certificate == "its provider's"
    assert "shown" not in repr(store.instances.get("i1"))
