"""Deployment files: what is read, and one line for what cannot be."""

from __future__ import annotations

from pathlib import Path

import pytest

from deploy.config import CheckpointsConfig, DeploymentConfig
from deploy.store.decisions import Mode
from deploy.yamlfile import ConfigError

FILE = "state: state\nproviders: {local: offers.yaml}\n"


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "deployment.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def test_what_is_left_out_has_its_default(tmp_path: Path) -> None:
    config = DeploymentConfig.load(written(tmp_path, FILE))
    assert config.policy.market == "multicloud"
    assert config.policy.mode is Mode.ACT
    assert config.store_url.startswith("sqlite:///")


def test_in_shadow_mode_a_rule_acts_and_the_policy_is_watched(tmp_path: Path) -> None:
    config = DeploymentConfig.load(written(tmp_path, FILE + "policy: {mode: shadow}\n"))
    assert config.policy.mode is Mode.SHADOW
    assert (config.policy.acting.market, config.policy.market) == ("expected_cost", "multicloud")


def test_what_submitters_and_clients_may_take_can_be_set(tmp_path: Path) -> None:
    http = DeploymentConfig.load(
        written(tmp_path, FILE + "http: {connections: 9, quotas: {live_jobs: 5, free_disk_mib: 0}}\n")
    ).http
    assert (http.connections, http.connections_each) == (9, 500)
    assert (http.quotas.live_jobs, http.quotas.free_disk_mib, http.quotas.jobs_a_minute) == (5, 0, 60)


def test_a_dry_run_can_be_asked_for(tmp_path: Path) -> None:
    config = DeploymentConfig.load(written(tmp_path, FILE + "policy: {mode: dry-run}\n"))
    assert config.policy.mode is Mode.DRY_RUN


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ("policy: {mode: shade}\n", "policy.mode"),
        ("policy: {acting: expected_cost}\n", "policy.acting"),
        ("scheduler: {reconsider_s: -1}\n", "scheduler.reconsider_s"),
        ("polciy: {}\n", "polciy"),
        ("http: {quotas: {live_jobs: 0}}\n", "http.quotas.live_jobs"),
        ("http: {quotas: {jobs: 1}}\n", "http.quotas.jobs"),
        ("http: {connections: many}\n", "http.connections"),
        ("scheduler: {period_s: 0}\n", "scheduler.period_s"),
        (": : :\n", "is not YAML"),
    ],
)
def test_mistakes_are_one_line(tmp_path: Path, more: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as refused:
        DeploymentConfig.load(written(tmp_path, FILE + more))
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("given", "spark", "flower"),
    [
        ("s3://spotweave-1/a", "s3a://spotweave-1/a", "s3://spotweave-1/a"),
        ("s3a://spotweave-1/a/", "s3a://spotweave-1/a", "s3a://spotweave-1/a/"),
        ("/mnt/kept", "/mnt/kept", "/mnt/kept"),
        ("{flower: /mnt/kept}", None, "/mnt/kept"),
        ("{spark: 'hdfs://h/a'}", "hdfs://h/a", None),
    ],
)
def test_one_place_for_checkpoints_is_for_both_kinds_of_jobs(
    tmp_path: Path, given: str, spark: str | None, flower: str | None
) -> None:
    config = DeploymentConfig.load(written(tmp_path, FILE + f"runners: {{checkpoints: {given}}}\n"))
    assert config.runners.checkpoints == CheckpointsConfig(spark=spark, flower=flower)


@pytest.mark.parametrize(
    ("given", "key"),
    [
        ("s3://Upper/a", "runners.checkpoints.spark"),
        ("kept", "runners.checkpoints.flower"),
        ("{flower: 'hdfs://h/a'}", "runners.checkpoints.flower"),
        ("{flowers: /mnt/kept}", "runners.checkpoints.flowers"),
    ],
)
def test_a_malformed_place_for_checkpoints_is_one_line(tmp_path: Path, given: str, key: str) -> None:
    with pytest.raises(ConfigError, match=key) as refused:
        DeploymentConfig.load(written(tmp_path, FILE + f"runners: {{checkpoints: {given}}}\n"))
    assert "\n" not in str(refused.value)


def test_who_may_reach_it_is_said_or_asked_for_a_token(tmp_path: Path) -> None:
    http = DeploymentConfig.load(written(tmp_path, FILE)).http
    assert (http.host, http.port, http.tokens, http.tls) == ("127.0.0.1", 8421, True, None)
    open_to_all = DeploymentConfig.load(written(tmp_path, FILE + "http: {tokens: false, port: 9000}\n")).http
    assert (open_to_all.port, open_to_all.tokens) == (9000, False)


def test_the_key_of_a_database_elsewhere_is_in_the_state_folder(tmp_path: Path) -> None:
    assert DeploymentConfig.load(written(tmp_path, FILE)).key_file is None
    config = DeploymentConfig.load(written(tmp_path, FILE + "store: postgresql://me@host/name\n"))
    assert config.key_file == config.state_folder / "deployment.key"


def test_a_dry_run_changes_nothing_else(tmp_path: Path) -> None:
    config = DeploymentConfig.load(written(tmp_path, FILE + "policy: {market: cheapest}\n"))
    dry = config.dry_run()
    assert (dry.policy.mode, dry.policy.market) == (Mode.DRY_RUN, "cheapest")
    assert dry.model_copy(update={"policy": config.policy}) == config


def test_a_mistyped_key_is_told_before_the_one_that_it_should_have_been(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="provider: extra inputs"):
        DeploymentConfig.load(written(tmp_path, "state: state\nprovider: {local: offers.yaml}\n"))


AWS = """
regions:
  us-east-1: {image: ami-00000000, security_group: sg-00000000, subnets: {us-east-1a: subnet-00000000}}
instance_types: {g4dn.xlarge: {quota: 1}}
node: {scheduler_url: "https://scheduler.example:8443"}
"""


@pytest.mark.parametrize("given", ["", "providers: {}\n"])
def test_a_deployment_rents_somewhere(tmp_path: Path, given: str) -> None:
    with pytest.raises(ConfigError, match="providers: ") as refused:
        DeploymentConfig.load(written(tmp_path, "state: state\n" + given))
    assert str(refused.value).startswith(f"{tmp_path / 'deployment.yaml'}: ")


def test_a_provider_that_is_not_installed_is_named(tmp_path: Path) -> None:
    config = DeploymentConfig.load(written(tmp_path, "state: state\nproviders: {abc: abc.yaml}\n"))
    with pytest.raises(ConfigError, match="no provider 'abc' is installed: expected aws, gcp, local"):
        config.rented()


def test_instances_elsewhere_must_reach_what_runs_jobs_here(tmp_path: Path) -> None:
    (tmp_path / "aws.yaml").write_text(AWS)
    file = "state: state\nproviders: {aws: aws.yaml}\n"
    with pytest.raises(ConfigError, match=r"runners\.address is 127\.0\.0\.1, which instances of AWS cannot"):
        DeploymentConfig.load(written(tmp_path, file)).rented()
    reached = DeploymentConfig.load(written(tmp_path, file + "runners: {address: 10.0.0.10}\n"))
    assert reached.rented()["aws"].state_folder == reached.state_folder / "aws"
    for address in ("0.0.0.0", "scheduler", "::"):
        with pytest.raises(ConfigError, match=r"runners\.address"):
            DeploymentConfig.load(written(tmp_path, file + f"runners: {{address: '{address}'}}\n"))
    # An emulated AWS, whose instances are processes of this machine.
    (tmp_path / "aws.yaml").write_text(AWS.replace("https://scheduler.example", "http://127.0.0.1"))
    assert list(DeploymentConfig.load(written(tmp_path, file)).rented()) == ["aws"]


@pytest.mark.parametrize("name", ["aws", "demo", "demo_aws", "local"])
def test_the_example_deployments_are_ones(name: str) -> None:
    config = DeploymentConfig.load(Path(__file__).parents[2] / "configs" / "deploy" / f"{name}.yaml")
    assert config.rented()


@pytest.mark.parametrize("given", ["0", "-1", "much", ".inf"])
def test_a_budget_is_an_amount(tmp_path: Path, given: str) -> None:
    with pytest.raises(ConfigError, match="budget_usd"):
        DeploymentConfig.load(written(tmp_path, FILE + f"budget_usd: {given}\n"))
