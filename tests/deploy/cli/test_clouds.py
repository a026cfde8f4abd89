"""`spotweave clouds` and `offers` on an emulated account, and what keeps `serve` from starting there."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from deploy.clouds import open_providers
from deploy.config import DeploymentConfig
from deploy.model.instances import LaunchRequest
from deploy.model.jobs import JobState, TaskKey
from deploy.scheduler.act.placing import place
from deploy.service import open_store
from deploy.store.jobs import Job
from tests.deploy.cli.commands import NO_JAVA, deployment, refusal, spotweave
from tests.deploy.emulated import TYPE, Make, emulating
from tests.deploy.scheduler.worlds import batch

pytestmark = pytest.mark.real


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    with emulating(tmp_path, monkeypatch) as made:
        yield made


def test_an_account_in_which_all_is_right(make: Make) -> None:
    aws = make()
    done = spotweave("clouds", "check", "--config", aws.deployment())
    assert done.exit_code == 0, done.output
    lines = done.stdout.splitlines()
    assert lines[0] == "ok       aws: 4 offers are configured"
    assert not [line for line in lines if not line.startswith("ok ")]
    for what in ("credentials", "clock", "permissions", "us-east-1 image", "us-east-1 quotas"):
        assert [line for line in lines if line.startswith(f"ok       aws {what}: ")], what
    assert aws.running() == []


@pytest.mark.parametrize(
    ("account", "words"),
    [
        ({}, "s3://spotweave-kept/a: there is no such bucket: create it"),
        ({"denied": ["s3:ListBucket"]}, "may not s3:ListBucket: attach what spotweave clouds"),
        ({"denied": ["s3:PutObject"]}, "may not s3:PutObject: attach what spotweave clouds"),
    ],
)
def test_a_bucket_that_cannot_be_used_keeps_serve_from_starting(
    make: Make, account: dict[str, Any], words: str
) -> None:
    config = make(**account, buckets=["spotweave-kept"] if account else []).deployment(
        runners={"checkpoints": {"flower": "s3://spotweave-kept/a"}}
    )
    checked = spotweave("clouds", "check", "--config", config)
    assert checked.exit_code == 2, checked.output
    (line,) = [one for one in checked.stdout.splitlines() if one.startswith("MISSING ")]
    assert line.startswith("MISSING  aws checkpoints: ")
    assert words in line
    assert words in refusal(spotweave("serve", "--config", config, env=NO_JAVA))


_OTHER_IMAGE = "ami-00000000000000001"
_NONE = {"standard": 0, "g": 0, "p": 0, "inf": 0}
_ONE_POOL = {"zone": "us-east-1a", "instance_type": TYPE, "spot_usd_hour": 0.2, "on_demand_usd_hour": 0.5}


@pytest.mark.parametrize(
    ("account", "what", "words"),
    [
        ({"access_keys": ["AKIAOTHER"]}, "credentials", "does not accept these credentials"),
        ({"denied": ["ec2:RunInstances"]}, "us-east-1 launch", "may not ec2:RunInstances"),
        ({"denied": ["ec2:Terminate*"]}, "permissions", "may not ec2:TerminateInstances"),
        ({"images": [{"image_id": _OTHER_IMAGE}]}, "us-east-1 image", "not there, or not shared"),
        ({"pools": [_ONE_POOL]}, "us-east-1 types", f"{TYPE} is not offered in us-east-1b"),
        ({"spot_quota": _NONE}, "us-east-1 quotas", "spot: 0 vCPUs allowed"),
        ({"faults": {"clock_skew_s": 900}}, "credentials", "synchronise it (NTP)"),
    ],
)
def test_what_is_missing_is_one_line_and_keeps_serve_from_starting(
    make: Make, account: dict[str, Any], what: str, words: str
) -> None:
    here = make(**account)
    config = here.deployment()
    checked = spotweave("clouds", "check", "--config", config)
    assert checked.exit_code == 2, checked.output
    (line,) = [one for one in checked.stdout.splitlines() if one.startswith(f"MISSING  aws {what}: ")]
    assert words in line
    refused = refusal(spotweave("serve", "--config", config, env=NO_JAVA))
    assert refused.startswith(f"error: aws {what}: ")
    assert words in refused
    assert here.running() == []


def test_policies_are_printed_for_the_deployment(make: Make) -> None:
    config = make().deployment(
        {"instance_profile": "spark-node"},
        runners={"checkpoints": {"flower": "s3://kept/rounds", "spark": "s3://kept/spark"}},
    )
    printed = spotweave("clouds", "policy", "--config", config)
    assert printed.exit_code == 0, printed.output
    with open_store(DeploymentConfig.load(config), time.time()) as store:
        deployment_id = store.deployment_id
    ends = next(
        one for one in json.loads(printed.stdout)["Statement"] if "ec2:TerminateInstances" in one["Action"]
    )
    assert ends["Resource"] == ["arn:aws:ec2:us-east-1:123456789012:instance/*"]
    assert ends["Condition"]["StringEquals"] == {
        "aws:ResourceTag/spotweave:deployment": deployment_id,
        "aws:ResourceAccount": "123456789012",
    }
    assert "arn:aws:s3:::kept/rounds/*" in printed.stdout
    other = spotweave("clouds", "policy", "--config", config, "--account", "999999999999", "--role", "node")
    (objects, names) = json.loads(other.stdout)["Statement"]
    assert objects["Resource"] == ["arn:aws:s3:::kept/spark/*"]
    assert names["Condition"]["StringEquals"] == {"aws:ResourceAccount": "999999999999"}
    said = spotweave("clouds", "policy", "--config", config, "--role", "operator").stdout
    assert "servicequotas:GetServiceQuota" in said


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--role", "admin"), "'admin': expected scheduler, operator, node"),
        (("--account", "12"), "'12': expected 12 digits"),
    ],
)
def test_a_policy_of_nothing_is_refused_in_one_line(make: Make, options: tuple[str, ...], words: str) -> None:
    config = make().deployment()
    assert words in refusal(spotweave("clouds", "policy", "--config", config, *options))


def test_without_aws_there_is_no_policy(tmp_path: Path) -> None:
    refused = refusal(spotweave("clouds", "policy", "--config", deployment(tmp_path)))
    assert "rents nothing from AWS" in refused


def test_without_a_network_it_says_so(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    config = make().deployment()
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setattr("botocore.endpoint.time.sleep", lambda _: None)
    checked = spotweave("clouds", "check", "--config", config)
    assert checked.exit_code == 2
    assert "MISSING  aws credentials: " in checked.stdout
    assert "AWS cannot be reached" in checked.stdout
    assert "AWS cannot be reached" in refusal(spotweave("serve", "--config", config, env=NO_JAVA))


def test_offers_of_the_clouds_themselves(make: Make) -> None:
    config = make(
        denied=["ec2:GetSpotPlacementScores"],
    ).deployment()
    found = spotweave("offers", "--config", config, "--gpu", "t4", "--max-price", "0.40", "--json")
    assert found.exit_code == 0, found.output
    rows = json.loads(found.stdout)
    assert [(one["zone"], one["market"], one["price_usd_hour"]) for one in rows] == [
        ("us-east-1a", "spot", 0.2),
        ("us-east-1b", "spot", 0.3),
    ]
    assert found.stderr.startswith("note: no placement score: ")
    table = spotweave("offers", "--config", config)
    _, first, *rest = table.stdout.splitlines()
    assert first.split() == ["us-east-1a", TYPE, "spot", "T4", "0.2000", "0.5260", "100", "%", "-", "yes"]
    assert len(rest) == 3
    assert "give one of them" in refusal(spotweave("offers", "--config", config, "--server", "http://x"))
    assert (
        spotweave("offers", "--config", config, "--gpu", "H100").stdout
        == "nothing that can be rented is so\n"
    )


def test_placement_scores_where_they_are_known(make: Make) -> None:
    found = spotweave("offers", "--config", make().deployment(), "--json")
    scores = {one["zone"]: one["score"] for one in json.loads(found.stdout) if one["market"] == "spot"}
    assert set(scores) == {"us-east-1a", "us-east-1b"}
    assert all(1 <= score <= 10 for score in scores.values())


def rent(config: Path) -> tuple[str, str, str]:
    """Ids of an instance that a job needs, one of a cancelled job, and one that the store does not know."""
    loaded = DeploymentConfig.load(config)
    (provider,) = open_providers(loaded).values()
    with closing(provider), open_store(loaded, time.time()) as store:
        offer = next(one for one in provider.offers() if one.market == "spot")
        ids = []
        for name in ("needed", "cancelled"):
            job_id = f"{name}-1"
            with store.transaction():
                store.jobs.add(Job(job_id, batch(name), JobState.PENDING, time.time(), "/", "me"))
                place(store, TaskKey(job_id, "main"), 1, offer, time.time(), None)
            (one,) = store.instances.of_job(job_id)
            ids.append(_launch(provider, store.deployment_id, offer.offer_id, one.client_token, job_id))
        with store.transaction():
            store.jobs.set_state("cancelled-1", JobState.CANCELLED, time.time(), "")
        ids.append(_launch(provider, store.deployment_id, offer.offer_id, "lost", "lost-1"))
        # Another deployment's is none of our business.
        _launch(provider, "another", next(o.offer_id for o in provider.offers()), "x", "other-1")
    return ids[0], ids[1], ids[2]


def _launch(provider: Any, deployment: str, offer_id: str, token: str, job_id: str) -> str:
    request = LaunchRequest(token, offer_id, deployment, job_id, "main", "a-node-token-0123456789")
    return str(provider.launch(request).instance_id)


def test_a_sweep_lists_and_then_ends_what_no_job_needs(make: Make) -> None:
    aws = make()
    config = aws.deployment({"instance_types": {TYPE: {"quota": 5}}})
    assert "nothing was served with" in refusal(spotweave("clouds", "sweep", "--config", config))
    needed, cancelled, lost = rent(config)
    before = set(aws.running())
    listed = spotweave("clouds", "sweep", "--config", config)
    assert listed.exit_code == 0, listed.output
    assert needed not in listed.stdout
    assert f"{cancelled}  " in listed.stdout
    assert "job cancelled-1 does not need it" in listed.stdout
    assert f"{lost}  " in listed.stdout
    assert "2 would be ended: say so with --yes" in listed.stderr
    assert set(aws.running()) == before
    told = [
        json.loads(line)
        for line in spotweave("clouds", "sweep", "--config", config, "--json").stdout.splitlines()
    ]
    assert {one["instance_id"] for one in told} == {cancelled, lost}
    swept = spotweave("clouds", "sweep", "--config", config, "--yes")
    assert "2 are being ended" in swept.stderr
    assert set(aws.running()) == before - {cancelled, lost}
    assert "nothing runs that no job needs" in spotweave("clouds", "sweep", "--config", config).stdout


def test_while_it_is_served_the_scheduler_does_that(make: Make) -> None:
    config = make().deployment()
    with open_store(DeploymentConfig.load(config), time.time()) as store:
        lead = store.lead()
        assert "is being served, and its scheduler ends" in refusal(
            spotweave("clouds", "sweep", "--config", config)
        )
        lead.release()


def test_a_deployment_without_clouds_has_nothing_missing(tmp_path: Path) -> None:
    done = spotweave("clouds", "check", "--config", deployment(tmp_path))
    assert (done.exit_code, done.stdout) == (0, "ok       local: 2 offers are configured\n")


def test_emulate_aws_says_what_is_wrong_with_its_file(tmp_path: Path) -> None:
    done = spotweave("emulate-aws", "--config", tmp_path / "none.yaml")
    assert done.exit_code == 2
