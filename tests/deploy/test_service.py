"""A deployment on AWS put together: its providers, what its runners are told, where its nodes join."""

from __future__ import annotations

import itertools
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from spotweave.deploy import pruning
from spotweave.deploy.config import CheckpointsConfig, DeploymentConfig, RunnersConfig
from spotweave.deploy.model.clock import VirtualClock
from spotweave.deploy.model.jobs import JobState, TaskKey
from spotweave.deploy.objects.location import FolderObjects
from spotweave.deploy.pruning import Pruning
from spotweave.deploy.runners.bag.task import BagSettings
from spotweave.deploy.runners.flower.runner import FlowerSettings
from spotweave.deploy.runners.spark.settings import SparkSettings
from spotweave.deploy.runners.workflow.files import WorkflowSettings
from spotweave.deploy.scheduler.placing import place
from spotweave.deploy.security.keys import node_pair
from spotweave.deploy.security.tokens import join_token
from spotweave.deploy.server.admission import Quotas
from spotweave.deploy.server.connections import ConnectionLimits
from spotweave.deploy.server.run import HttpListener as Listening
from spotweave.deploy.service import Service, make_runners, open_store
from spotweave.deploy.serving import Serving, application
from spotweave.deploy.store.errors import LeaseLostError, StoreUnavailableError
from spotweave.deploy.store.jobs import Job
from spotweave.deploy.store.store import Store
from spotweave.deploy.yamlfile import ConfigError
from tests.deploy.cli.commands import NO_JAVA, deployment, refusal, spotweave
from tests.deploy.emulated import Make, emulating
from tests.deploy.hostile import dig
from tests.deploy.node.agents import wait_until
from tests.deploy.scheduler.worlds import batch, offer
from tests.deploy.store.cases import add_job
from tests.deploy.store.conftest import NOW

OFFERS = Path(__file__).resolve().parents[2] / "configs" / "deploy" / "local_offers.yaml"


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    with emulating(tmp_path, monkeypatch) as made:
        yield made


@contextmanager
def asking(app: FastAPI) -> Iterator[httpx.Client]:
    with (
        Listening(app, "127.0.0.1", 0) as listening,
        httpx.Client(base_url=f"http://127.0.0.1:{listening.port}", timeout=60, trust_env=False) as client,
    ):
        yield client


def _asked_for(config: Path, region: str = "us-east-1") -> Any:
    """An instance that the store holds for a job."""
    with open_store(DeploymentConfig.load(config), time.time()) as store:
        with store.transaction():
            store.jobs.add(Job("job-1", batch(), JobState.PENDING, time.time(), "/", "me"))
            there = offer("x", provider="aws", region=region)
            place(store, TaskKey("job-1", "main"), 1, there, time.time(), None)
        (one,) = store.instances.of_job("job-1")
    return one


@pytest.mark.real
def test_it_rents_from_all_that_it_names_and_nodes_join_there(make: Make) -> None:
    config = make().deployment(providers={"local": str(OFFERS), "aws": "aws.yaml"})
    instance = _asked_for(config)
    with closing(Service(DeploymentConfig.load(config))) as service:
        assert service.providers.keys() == {"local", "aws"}
        assert {one.provider for one in service.offers()} == {"local", "aws"}
        assert len(service.offers()) == 2 + 4
        token = join_token(instance.node_token, instance.client_token)
        with asking(application(service)) as client:
            shown = node_pair().certificate
            asked = {"client_token": instance.client_token, "join_token": token, "certificate": shown}
            assert client.post("/v1/join", json=asked).json() == {"node_token": instance.node_token}
            wrong = {**asked, "join_token": "x" * 43}
            assert client.post("/v1/join", json=wrong).status_code == httpx.codes.FORBIDDEN
            assert service.store.instances.get(instance.instance_id).certificate == shown


@pytest.mark.real
def test_its_file_says_what_clients_may_take_and_nobody_joins_it(make: Make) -> None:
    limits = {"connections": 9, "connections_each": 4, "quotas": {"live_jobs": 5}}
    http = {"port": 0, "tokens": False, **limits}
    config = DeploymentConfig.load(make().deployment(providers={"local": str(OFFERS)}, http=http))
    with closing(Service(config)) as service, asking(app := application(service)) as client:
        assert client.post("/v1/join", json={}).status_code == httpx.codes.NOT_FOUND
    settings = app.state.context.settings
    assert settings.connections == ConnectionLimits(most=9, most_each=4)
    assert settings.quotas == Quotas(live_jobs=5)
    assert settings.jobs == config.state_folder / "jobs"


@pytest.mark.real
def test_what_is_rented_is_looked_after_in_an_account_where_nothing_can_be_launched(make: Make) -> None:
    config = make(denied=["ec2:RunInstances", "ec2:DescribeSpotPriceHistory"]).deployment()
    with pytest.raises(ConfigError, match=r"may not ec2:RunInstances|ec2:DescribeSpotPriceHistory"):
        Service(DeploymentConfig.load(config))
    _asked_for(config)
    with closing(Service(DeploymentConfig.load(config))) as service:
        assert service.store.instances.live()


@pytest.mark.real
@pytest.mark.parametrize(
    ("region", "changes", "where"),
    [
        ("us-west-2", {}, "aws us-west-2"),
        ("us-east-1", {"providers": {"local": str(OFFERS)}}, "aws us-east-1"),
    ],
)
def test_a_region_or_provider_with_instances_cannot_be_dropped(
    make: Make, region: str, changes: dict[str, Any], where: str
) -> None:
    here = make()
    instance = _asked_for(here.deployment(), region)
    config = here.deployment(**changes)
    with pytest.raises(ConfigError) as caught:
        Service(DeploymentConfig.load(config))
    assert str(caught.value).startswith(f"{where}: {instance.instance_id} may run there")
    checked = spotweave("check", "--config", config, env=NO_JAVA)
    assert checked.exit_code == 2
    assert f"error    instances: {where}: {instance.instance_id} may run there" in checked.stdout
    assert f"error: {where}: " in refusal(spotweave("clouds", "sweep", "--config", config))
    # With what is left out put back, and once nothing runs there any more, all is well.
    if region == "us-east-1":
        with closing(Service(DeploymentConfig.load(here.deployment()))) as service:
            assert service.store.instances.live()
    with open_store(DeploymentConfig.load(config), time.time()) as store, store.transaction():
        store.instances.ended(instance.instance_id, time.time())
    checked = spotweave("check", "--config", config, env=NO_JAVA)
    assert "ok       instances: none" in checked.stdout
    with closing(Service(DeploymentConfig.load(config))) as service:
        assert not service.store.instances.live()


@pytest.mark.real
def test_a_dry_run_does_not_need_what_a_launch_does(make: Make) -> None:
    config = DeploymentConfig.load(make(denied=["ec2:RunInstances"]).deployment())
    with closing(Service(config.dry_run())) as service:
        assert len(service.offers()) == 4


@pytest.mark.real
def test_runners_are_told_where_nodes_reach_them(tmp_path: Path) -> None:
    kept = CheckpointsConfig(spark="s3://bucket/checkpoints")
    homes: dict[str, Any] = {"node_spark_home": "/opt/spark", "node_java_home": "/opt/java"}
    places = {"node_python": "/opt/python", **homes}
    told = RunnersConfig(address=IPv4Address("10.0.0.10"), checkpoints=kept, server_gpus=(0,), **places)
    objects = FolderObjects(tmp_path / "kept")
    south = {"south": tmp_path / "south"}
    spark, workflows, flower, bags = make_runners(told, tmp_path, objects, data=south)
    spark_settings = SparkSettings(
        tmp_path / "spark", address="10.0.0.10", checkpoints="s3a://bucket/checkpoints", **places
    )
    assert [vars(one)["_settings"] for one in (spark, workflows, flower, bags)] == [
        spark_settings,
        WorkflowSettings(tmp_path / "workflow", spark_settings, south),
        FlowerSettings(tmp_path / "flower", "10.0.0.10", "/opt/python", objects, server_gpus=(0,)),
        BagSettings(tmp_path / "bag", objects, "/opt/python"),
    ]
    spark, _, flower, bags = make_runners(RunnersConfig(), tmp_path)
    expected = (
        SparkSettings(tmp_path / "spark"),
        FlowerSettings(tmp_path / "flower"),
        BagSettings(tmp_path / "bag"),
    )
    assert tuple(vars(one)["_settings"] for one in (spark, flower, bags)) == expected


# The loop of a service: a failed pass is not its end, and a lost lead is.


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    """One that only decides: it has passes, and nothing to act on; no master of Spark starts."""
    config = DeploymentConfig.load(deployment(tmp_path, scheduler={"period_s": 0.01}))
    with closing(Service(config.dry_run())) as made:
        made.runners = []
        yield made


def stepping(service: Service, step: Callable[[int], None]) -> list[int]:
    """Passes do this instead; returns the numbers of those that began, which are ten at most."""
    passes: list[int] = []

    def one() -> None:
        passes.append(len(passes))
        if len(passes) == 10:
            service.stopping.set()
        step(passes[-1])

    service.scheduler.step = one  # type: ignore[method-assign]
    return passes


@pytest.mark.parametrize(
    "error", [ZeroDivisionError("in a pass"), StoreUnavailableError("the disk is full"), MemoryError()]
)
def test_a_pass_that_fails_is_followed_by_the_next_one(service: Service, error: Exception) -> None:
    def step(number: int) -> None:
        assert service.last_pass_s() is None, "one that failed does not count"
        if number < 2:
            raise error
        service.stopping.set()

    passes = stepping(service, step)
    service.run()
    assert passes == [0, 1, 2]
    assert service.last_pass_s() is not None


def test_a_leader_without_its_lock_file_makes_no_further_pass(service: Service, tmp_path: Path) -> None:
    lock = tmp_path / "state" / "store.db.leader"
    passes = stepping(service, lambda number: lock.unlink(missing_ok=True))
    service.run()
    assert passes == [0]
    assert not service.stopping.is_set()


def test_a_leader_that_was_followed_by_another_writes_nothing(service: Service, tmp_path: Path) -> None:
    config = service.config
    written: list[bool] = []

    def step(number: int) -> None:
        """In the middle of a pass, somebody removes the lock's file and starts another service."""
        if number:
            return
        (tmp_path / "state" / "store.db.leader").unlink()
        with closing(Service(config)) as other:
            with pytest.raises(LeaseLostError):
                add_job(service.store, "mine")
            add_job(other.store, "its")
            written.append(other._lead.held())
        raise LeaseLostError("as the pass does then")

    passes = stepping(service, step)
    service.run()
    assert (passes, written) == ([0], [True])
    assert [job.job_id for job in service.store.jobs.live()] == ["its"]


def test_no_pass_is_made_while_nobody_knows_who_leads(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    passes = stepping(service, lambda number: service.stopping.set())
    held, asked = service._lead.held, itertools.count(1)

    def unknown() -> bool:
        if next(asked) > 3:
            return held()
        assert passes == []
        raise StoreUnavailableError("the database does not answer")

    monkeypatch.setattr(service._lead, "held", unknown)
    service.run()
    assert (passes, next(asked)) == ([0], 5)


@pytest.mark.real
def test_a_service_whose_lead_is_lost_cannot_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = DeploymentConfig.load(deployment(tmp_path, scheduler={"period_s": 0.01}))
    with Serving(config.dry_run()) as serving:
        assert serving.alive()
        (tmp_path / "state" / "store.db.leader").unlink()
        wait_until(lambda: not serving.alive())
        # What jobs share is another leader's now.
        monkeypatch.setattr(serving.service, "shutdown", lambda: pytest.fail("it ended what jobs share"))
        kept = serving.service.store.events.latest(100)
    assert [event.kind for event in kept] == ["service.started"]
    monkeypatch.undo()
    serving.service.shutdown()


# Folders of jobs that ended long ago are removed: those and nothing else, whatever is in them.


DAY_S = 86_400.0


@pytest.fixture
def jobs(tmp_path: Path) -> Path:
    (tmp_path / "jobs").mkdir()
    return tmp_path / "jobs"


def keep(store: Store, jobs: Path, job_id: str, ended_s: float | None = NOW) -> Path:
    add_job(store, job_id)
    with store.transaction():
        store.folders.add(job_id, "ana", 100)
        if ended_s is not None:
            store.jobs.set_state(job_id, JobState.SUCCEEDED, ended_s)
    (jobs / job_id / "logs").mkdir(parents=True)
    (jobs / job_id / "logs" / "driver.log").write_text("a line\n")
    return jobs / job_id


def later(store: Store, jobs: Path, days: float = 31.0) -> Pruning:
    return Pruning(store, jobs, VirtualClock(NOW + days * DAY_S))


def test_what_ended_long_ago_goes_and_what_lives_or_ended_lately_stays(store: Store, jobs: Path) -> None:
    keep(store, jobs, "old")
    keep(store, jobs, "late", NOW + 5 * DAY_S)
    keep(store, jobs, "live", None)
    assert store.folders.held("ana", NOW).uploaded_bytes == 300
    once = later(store, jobs)
    assert (once.prune(), once.prune()) == (1, 0)
    assert sorted(path.name for path in jobs.iterdir()) == ["late", "live"]
    assert store.folders.held("ana", NOW).uploaded_bytes == 200
    assert store.jobs.get("old").state is JobState.SUCCEEDED, "the books are kept"


def test_links_are_removed_and_not_followed(store: Store, jobs: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir(mode=0o500)
    (outside / "kept.txt").touch()
    folder = keep(store, jobs, "linked")
    (folder / "folder").symlink_to(outside)
    (folder / "logs" / "file").symlink_to(outside / "kept.txt")
    swapped = keep(store, jobs, "swapped")
    subprocess.run(["rm", "-r", swapped], check=True)
    swapped.symlink_to(outside)
    assert later(store, jobs).prune() == 2
    assert list(jobs.iterdir()) == []
    assert [path.name for path in outside.iterdir()] == ["kept.txt"]
    assert outside.stat().st_mode & 0o777 == 0o500


def test_no_permissions_and_no_depth_keep_a_folder(store: Store, jobs: Path) -> None:
    folder = keep(store, jobs, "stubborn")
    (folder / "closed" / "inner").mkdir(parents=True)
    (folder / "closed" / "inner").chmod(0)
    (folder / "closed").chmod(0)
    dig(folder, 3000)
    assert later(store, jobs).prune() == 1
    assert list(jobs.iterdir()) == []


def test_little_goes_at_a_time(store: Store, jobs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pruning, "_MOST", 2)
    for number in range(5):
        keep(store, jobs, f"old-{number}", NOW + number)
    once = later(store, jobs)
    assert [once.prune() for _ in range(4)] == [2, 2, 1, 0]


def test_one_that_cannot_be_removed_keeps_no_other(
    store: Store, jobs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pruning, "_MOST", 1)
    keep(store, jobs, "stuck", NOW)
    keep(store, jobs, "other", NOW + 1)
    remove = Pruning._remove
    with monkeypatch.context() as patched:
        patched.setattr(Pruning, "_remove", lambda self, at: "stuck" not in at.name and remove(self, at))
        once = later(store, jobs)
        assert [once.prune() for _ in range(3)] == [0, 1, 0]
        assert store.folders.due(NOW + 40 * DAY_S, 9) == ["stuck"]
    assert later(store, jobs).prune() == 1, "after a start"
    assert list(jobs.iterdir()) == []


def test_what_a_crash_left_half_removed_goes(store: Store, jobs: Path) -> None:
    folder = keep(store, jobs, "half")
    folder.rename(jobs / ".removed-half")
    assert later(store, jobs).prune() == 1
    assert list(jobs.iterdir()) == []
    assert store.folders.due(NOW + 40 * DAY_S, 9) == []


def test_where_nothing_was_ever_submitted_there_is_nothing_to_do(store: Store, jobs: Path) -> None:
    jobs.rmdir()
    one = later(store, jobs)
    assert one.prune() == 0
    one.start()
    one.close()
