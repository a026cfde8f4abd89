"""Deployment files: what is read, and one line for what cannot be."""

from __future__ import annotations

from pathlib import Path

import pytest

from deploy.config import ConfigError, load_deployment
from deploy.store.decisions import Mode

FILE = "state: state\nlocal: offers.yaml\n"


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "deployment.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def test_what_is_left_out_has_its_default(tmp_path: Path) -> None:
    config = load_deployment(written(tmp_path, FILE))
    assert config.policy.market == "multicloud"
    assert config.policy.mode is Mode.ACT
    assert config.store_url.startswith("sqlite:///")


def test_in_shadow_mode_a_rule_acts_and_the_policy_is_watched(tmp_path: Path) -> None:
    config = load_deployment(written(tmp_path, FILE + "policy: {mode: shadow}\n"))
    assert config.policy.mode is Mode.SHADOW
    assert (config.policy.acting.market, config.policy.market) == ("expected_cost", "multicloud")


def test_a_dry_run_can_be_asked_for(tmp_path: Path) -> None:
    config = load_deployment(written(tmp_path, FILE + "policy: {mode: dry-run}\n"))
    assert config.policy.mode is Mode.DRY_RUN


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ("policy: {mode: shade}\n", "policy.mode"),
        ("policy: {acting: expected_cost}\n", "policy.acting"),
        ("scheduler: {reconsider_s: -1}\n", "scheduler.reconsider_s"),
        ("polciy: {}\n", "polciy"),
        ("scheduler: {period_s: 0}\n", "scheduler.period_s"),
        (": : :\n", "is not YAML"),
    ],
)
def test_mistakes_are_one_line(tmp_path: Path, more: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as refused:
        load_deployment(written(tmp_path, FILE + more))
    assert "\n" not in str(refused.value)


def test_who_may_reach_it_is_said_or_asked_for_a_token(tmp_path: Path) -> None:
    http = load_deployment(written(tmp_path, FILE)).http
    assert (http.host, http.port, http.tokens, http.tls) == ("127.0.0.1", 8421, True, None)
    open_to_all = load_deployment(written(tmp_path, FILE + "http: {tokens: false, port: 9000}\n")).http
    assert (open_to_all.port, open_to_all.tokens) == (9000, False)


def test_the_key_of_a_database_elsewhere_is_in_the_state_folder(tmp_path: Path) -> None:
    assert load_deployment(written(tmp_path, FILE)).key_file is None
    config = load_deployment(written(tmp_path, FILE + "store: postgresql://me@host/name\n"))
    assert config.key_file == config.state_folder / "deployment.key"


def test_a_dry_run_changes_nothing_else(tmp_path: Path) -> None:
    config = load_deployment(written(tmp_path, FILE + "policy: {market: cheapest}\n"))
    dry = config.dry_run()
    assert (dry.policy.mode, dry.policy.market) == (Mode.DRY_RUN, "cheapest")
    assert dry.model_copy(update={"policy": config.policy}) == config


def test_a_mistyped_key_is_told_before_the_one_that_it_should_have_been(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="locla: extra inputs"):
        load_deployment(written(tmp_path, "state: state\nlocla: offers.yaml\n"))
