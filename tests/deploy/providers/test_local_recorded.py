"""The recorded markets that ship with the local provider: the bundle's, and usable as they are."""

from __future__ import annotations

from pathlib import Path

import pytest

from deploy.providers import local
from deploy.providers.local.config import LocalConfig
from deploy.providers.local.traces import load_recording
from envs.traces.bundle import load_bundle
from envs.traces.market import load_trace

FOLDER = Path(local.__file__ or "").parent / "recorded"
ZONES = sorted(path.parent.name for path in FOLDER.glob("*/trace.json"))


@pytest.mark.parametrize("zone", ZONES)
def test_they_are_the_bundles(zone: str) -> None:
    theirs = load_bundle().offer_trace("aws", zone[:-1], zone, "p3.2xlarge", "spot")
    ours, checked = load_recording(FOLDER / zone, None), load_trace(FOLDER / zone).offer_trace()
    assert ours.length_s == 3937790
    for at in range(0, 3937790, 6007):
        assert ours.available(at) == bool(theirs.availability.at(at)) == bool(checked.availability.at(at))
        assert ours.price_usd_hour(at) == pytest.approx(theirs.price_usd_hour.at(at), abs=5e-5)


def test_the_example_can_be_used() -> None:
    config = LocalConfig.load(FOLDER / "offers.yaml")
    assert len(ZONES) == 3
    assert set(config.recordings()) == {
        *(f"local/{zone}/p3.2xlarge/spot" for zone in ZONES),
        "local/us-east-2/p3.2xlarge/on_demand",
        "local/local/laptop/owned",
    }
    assert not (FOLDER / "state").exists()
