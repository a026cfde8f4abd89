"""A thousand hours on a cloud where everything goes wrong: nothing lost, nothing leaked, bills exact.

Disks are billed to the cent: to a 3.6 thousand millionth of a dollar for each instance and day.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from deploy.providers.gcp import listing
from tests.deploy.emulator.chaos import FAULTS, run, spells, troubles
from tests.deploy.emulator.worlds import CLOUDS


@pytest.mark.parametrize("cloud", CLOUDS)
@pytest.mark.parametrize(
    ("hours", "troubles_every_h", "interruptions", "failures", "stopped"),
    [
        pytest.param(1000.0, 24.0, 500, 200, 5, marks=pytest.mark.nightly, id="a thousand hours"),
        pytest.param(36.0, 3.0, 6, 6, 0, marks=pytest.mark.real, id="a day and a half"),
    ],
)
def test_chaos(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    cloud: str,
    hours: float,
    troubles_every_h: float,
    interruptions: int,
    failures: int,
    stopped: int,
) -> None:
    # No operation is ever forgotten here: looks take several pages, and read no more than they need.
    monkeypatch.setattr(listing, "PAGE", 20)
    world = CLOUDS[cloud]
    emulated = {
        "pools": spells(tmp_path, 1, hours + 100.0, world.zones, world.pool, up_s=15_000),
        "launch_s": 25.0,
        **world.quotas,
        "faults": {**FAULTS, **world.calls, "spells": troubles(world, hours, troubles_every_h)},
    }
    run(world(tmp_path, emulated, monkeypatch), hours, interruptions, failures, stopped)
