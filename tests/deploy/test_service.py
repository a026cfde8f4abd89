"""A deployment on AWS put together: its providers, what its runners are told, where its nodes join."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from deploy.config import CheckpointsConfig, DeploymentConfig, RunnersConfig
from deploy.model.jobs import JobState, TaskKey
from deploy.objects.location import FolderObjects
from deploy.runners.bag.task import BagSettings
from deploy.runners.flower.runner import FlowerSettings
from deploy.runners.spark.settings import SparkSettings
from deploy.runners.workflow.application import WorkflowSettings
from deploy.scheduler.placing import place
from deploy.security.tls import node_pair
from deploy.security.tokens import join_token
from deploy.server.admission import Quotas
from deploy.server.connections import ConnectionLimits
from deploy.server.run import HttpListener as Listening
from deploy.service import Service, make_runners, open_store
from deploy.serving import application
from deploy.store.jobs import Job
from deploy.yamlfile import ConfigError
from tests.deploy.cli.commands import NO_JAVA, refusal, spotweave
from tests.deploy.emulated import Make, emulating
from tests.deploy.scheduler.cases import offer
from tests.deploy.scheduler.worlds import batch

pytestmark = pytest.mark.real

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


def test_what_is_rented_is_looked_after_in_an_account_where_nothing_can_be_launched(make: Make) -> None:
    config = make(denied=["ec2:RunInstances", "ec2:DescribeSpotPriceHistory"]).deployment()
    with pytest.raises(ConfigError, match=r"may not ec2:RunInstances|ec2:DescribeSpotPriceHistory"):
        Service(DeploymentConfig.load(config))
    _asked_for(config)
    with closing(Service(DeploymentConfig.load(config))) as service:
        assert service.store.instances.live()


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


def test_a_dry_run_does_not_need_what_a_launch_does(make: Make) -> None:
    config = DeploymentConfig.load(make(denied=["ec2:RunInstances"]).deployment())
    with closing(Service(config.dry_run())) as service:
        assert len(service.offers()) == 4


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
