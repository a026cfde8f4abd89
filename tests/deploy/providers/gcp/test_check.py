"""Credentials that are not there, or no longer good, and which permissions are asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import google.auth
import pytest
from google.auth.exceptions import DefaultCredentialsError, RefreshError

from deploy.providers.gcp.check import check, needed
from deploy.providers.gcp.clients import VARIABLE, Clients
from tests.deploy.providers.gcp.project import GPU_TYPE, TYPE, Project
from tests.deploy.test_guides import granted


def expired(**_: Any) -> Any:
    return Expired(), None  # type: ignore[no-untyped-call]


class Expired(google.auth.credentials.Credentials):
    """A token that has run out, and whose owner has withdrawn the rest."""

    def refresh(self, request: object) -> None:
        raise RefreshError("invalid_grant: Token has been expired or revoked.")  # type: ignore[no-untyped-call]


def none(**_: Any) -> Any:
    raise DefaultCredentialsError("Your default credentials were not found.")  # type: ignore[no-untyped-call]


@pytest.mark.parametrize(
    ("chain", "words"),
    [
        (expired, "the credentials have expired or were withdrawn: gcloud auth"),
        (none, "no Google credentials: gcloud auth application-default login"),
    ],
)
def test_credentials_that_are_no_good_are_one_line_and_the_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chain: Any, words: str
) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setattr("google.auth.default", chain)
    prices, found = check(Project(tmp_path).config(), Clients())
    assert prices.what == "prices"
    assert (found.verdict, found.what) == ("missing", "us-central1 project")
    assert words in found.text
    assert "\n" not in found.text


def test_only_permissions_that_the_configuration_makes_use_of_are_asked_for(tmp_path: Path) -> None:
    project = Project(tmp_path)
    role = granted("role.yaml")
    plain = set(needed(project.config()))
    assert role - plain == {
        "compute.acceleratorTypes.get",
        "compute.instances.setServiceAccount",
        "compute.subnetworks.useExternalIp",
    }
    full = project.config(
        instance_types={TYPE: {"quota": 1}, GPU_TYPE: {"quota": 1}},
        service_account="nodes@spotweave-emulated.iam.gserviceaccount.com",
        node={"scheduler_url": "https://scheduler.example:8443", "address": "public"},
    )
    assert set(needed(full)) == role
