"""`spotweave token`: made by whoever can read the state folder."""

from __future__ import annotations

import json
import os
from pathlib import Path

from deploy.config import DeploymentConfig
from deploy.service import open_store
from tests.deploy.cli.commands import deployment, refusal, spotweave


def test_a_token_is_shown_once_and_listed_without_its_secret(tmp_path: Path) -> None:
    config = deployment(tmp_path)
    assert spotweave("token", "list", "--config", config).stdout.startswith("no access token yet")
    made = spotweave("token", "create", "--config", config, "--role", "viewer", "--name", "ci", "--days", "2")
    assert made.exit_code == 0, made.output
    token = made.stdout.strip()
    assert token.startswith("spw_")
    assert "(ci, viewer) expires" in made.stderr
    assert token not in made.stderr
    listed = spotweave("token", "list", "--config", config).stdout
    token_id = token.split("_")[1]
    assert token_id in listed
    assert token.split("_", 2)[2] not in listed
    (record,) = json.loads(spotweave("token", "list", "--config", config, "--json").stdout)
    assert (record["role"], record["name"]) == ("viewer", "ci")
    assert record["expires_s"] - record["created_s"] == 2 * 86_400
    assert "digest" not in record


def test_a_revoked_token_is_told_as_one(tmp_path: Path) -> None:
    config = deployment(tmp_path)
    made = spotweave("token", "create", "--config", config, "--role", "admin", "--name", "me")
    token_id = made.stdout.split("_")[1]
    assert spotweave("token", "revoke", "--config", config, token_id).exit_code == 0
    assert "revoked" in spotweave("token", "list", "--config", config).stdout
    assert "no access token 'none'" in refusal(spotweave("token", "revoke", "--config", config, "none"))
    with open_store(DeploymentConfig.load(config), 0.0) as store:
        assert [event.kind for event in store.events.latest(9)] == ["token.created", "token.revoked"]


def test_mistakes_make_no_token(tmp_path: Path) -> None:
    config = deployment(tmp_path)
    create = ("token", "create", "--config", config, "--name")
    assert "expected viewer, submitter, admin" in refusal(spotweave(*create, "me", "--role", "root"))
    assert "printable" in refusal(spotweave(*create, "", "--role", "admin"))
    assert "more than 0" in refusal(spotweave(*create, "me", "--role", "admin", "--days", "-1"))
    assert "cannot read" in refusal(
        spotweave("token", "create", "--config", tmp_path / "none", "--name", "me", "--role", "admin")
    )
    assert json.loads(spotweave("token", "list", "--config", config, "--json").stdout) == []


def test_what_holds_secrets_is_only_for_this_user(tmp_path: Path) -> None:
    spotweave("token", "list", "--config", deployment(tmp_path))
    state = tmp_path / "state"
    assert os.stat(state).st_mode & 0o777 == 0o700
    assert os.stat(state / "store.db").st_mode & 0o777 == 0o600
    assert os.stat(state / "store.db.key").st_mode & 0o777 == 0o600
