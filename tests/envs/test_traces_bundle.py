"""The shipped bundle and fitted figures against the facts stated with the raw recordings."""

import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from envs.simulation.availability import LognormalMixture
from envs.simulation.series import StepSeries
from envs.traces.bundle import DATA_DIR, DAY_S, OWNED_REGION, SPLIT_DAYS, load_bundle, load_fitted
from envs.traces.storage import TraceError

BUNDLE = load_bundle()
# Published with the recording: share of the 20,158 probes at which a launch could have succeeded, and the
# lowest and the highest price.
PUBLISHED = {
    "us-east-1a": (0.1667, 1.4429, 1.8464),
    "us-east-1c": (0.4665, 1.1680, 1.4053),
    "us-east-1d": (0.4473, 1.1142, 1.3661),
    "us-east-1f": (0.5912, 1.1487, 1.4003),
    "us-east-2a": (0.7593, 0.9180, 1.0741),
    "us-east-2b": (0.6822, 0.9180, 1.0331),
    "us-west-2a": (0.8831, 0.9180, 1.0461),
    "us-west-2b": (0.9050, 0.9180, 1.0339),
    "us-west-2c": (0.8913, 0.9180, 1.0855),
}


def states() -> NDArray[np.float64]:
    """(9, T) availability at each nominal tick of the record."""
    grid_s = np.arange(0, BUNDLE.record_end_s, BUNDLE.tick_s)
    rows = []
    for zone in BUNDLE.spot_zones():
        up = BUNDLE.offer_trace("aws", zone[:-1], zone, "p3.2xlarge", "spot").availability
        rows.append(up.values[np.searchsorted(up.times_s, grid_s, side="right") - 1])
    return np.stack(rows)


def test_availability_and_prices_of_each_zone() -> None:
    assert BUNDLE.spot_zones() == tuple(PUBLISHED)
    np.testing.assert_allclose(states().mean(axis=1), [row[0] for row in PUBLISHED.values()], atol=0.002)
    for zone, (_, lowest, highest) in PUBLISHED.items():
        price = BUNDLE.price("aws", zone[:-1], zone, "p3.2xlarge", "spot")
        assert (price.values.min(), price.values.max()) == (lowest, highest), zone


def test_at_least_one_zone_is_up_99_percent_of_the_time() -> None:
    assert states().max(axis=0).mean() == pytest.approx(0.992, abs=0.0005)


def test_zones_of_a_region_fail_together() -> None:
    correlation = np.asarray(np.corrcoef(states()))
    regions = np.array([zone[:-1] for zone in BUNDLE.spot_zones()])
    same = (regions[:, None] == regions) & ~np.eye(9, dtype=bool)
    apart = regions[:, None] != regions
    found = [(correlation[pairs].min(), correlation[pairs].max()) for pairs in (same, apart)]
    np.testing.assert_allclose(found, [(0.25, 0.59), (0.03, 0.27)], atol=0.01)


def test_up_spells_are_heavy_tailed() -> None:
    up = BUNDLE.offer_trace("aws", "us-west-2", "us-west-2b", "p3.2xlarge", "spot").availability
    lengths_h = np.diff(np.append(up.times_s, BUNDLE.record_end_s))[up.values == 1] / 3600
    assert lengths_h.mean() == pytest.approx(10.4, abs=0.1)
    assert np.median(lengths_h) == pytest.approx(1.4, abs=0.05)


def test_record_and_splits() -> None:
    # 20,158 probes from 2023-02-15 22:08:16 to 2023-04-02 11:54:51.
    assert BUNDLE.record_end_s == 45 * DAY_S + 13 * 3600 + 46 * 60 + 35 + 195
    days = sorted(SPLIT_DAYS.values())
    assert all(end == start for (_, end), (start, _) in pairwise(days))
    assert days[-1][1] * DAY_S < BUNDLE.record_end_s


def test_on_demand_prices() -> None:
    for region in ("us-east-1", "us-east-2", "us-west-2"):
        assert BUNDLE.on_demand_usd_hour("aws", region, "p3.2xlarge") == 3.06
    assert BUNDLE.on_demand_usd_hour("aws", "us-east-1", "g4dn.xlarge") == 0.526
    assert BUNDLE.on_demand_usd_hour("aws", "us-east-1", "g5.xlarge") == 1.006
    assert BUNDLE.on_demand_usd_hour("gcp", "us-central1", "a2-highgpu-1g") == pytest.approx(3.673385)
    trace = BUNDLE.offer_trace("aws", "us-west-2", "us-west-2b", "p3.2xlarge", "on_demand")
    assert trace.availability.at(40 * DAY_S) == 1.0
    assert not trace.synthetic_availability


def test_gcp_spot_prices_stand_210_days_earlier() -> None:
    price = BUNDLE.price("gcp", "us-central1", "us-central1-a", "a2-highgpu-1g", "spot")
    # Recorded: 1.102016 from 2023-05-08, 1.454670 from 2023-08-10, 1.469355 from 2023-09-28. Midnight of
    # 2023-09-28 is 14 days 1:51:44 after 2023-09-13 22:08:16.
    change_s = 14 * DAY_S + 1 * 3600 + 51 * 60 + 44
    assert price.at(0) == pytest.approx(1.454670)
    assert price.at(change_s - 1) == pytest.approx(1.454670)
    assert price.at(change_s) == pytest.approx(1.469355)
    assert price.at(-128 * DAY_S) == pytest.approx(1.102016)


def test_gcp_spot_availability_is_never_made_up() -> None:
    offer = ("gcp", "us-east4", "us-east4-a", "g2-standard-8", "spot")
    with pytest.raises(TraceError, match="never recorded: pass availability="):
        BUNDLE.offer_trace(*offer)
    given = StepSeries(np.array([0, 195]), np.array([1.0, 0.0]))
    trace = BUNDLE.offer_trace(*offer, availability=given)
    assert trace.availability is given
    assert trace.synthetic_availability


@pytest.mark.parametrize(
    ("source", "target", "usd"),
    [
        ("us-east-1", "us-east-1", 0.0),
        ("us-east-1", "us-east-2", 0.01),
        ("us-west-2", "us-east-2", 0.02),
        ("us-east-1", "us-central1", 0.09),
        ("us-central1", "us-east-1", 0.12),
        ("us-central1", "us-east4", 0.02),
        ("us-central1", "europe-west4", 0.05),
        ("europe-west4", "asia-east1", 0.08),
        ("us-west-2", OWNED_REGION, 0.09),
        (OWNED_REGION, "us-west-2", 0.0),
    ],
)
def test_egress(source: str, target: str, usd: float) -> None:
    assert BUNDLE.egress_usd_per_gb(source, target) == usd


def test_what_the_bundle_lacks_is_named() -> None:
    with pytest.raises(TraceError, match=r"no spot price of aws p3\.2xlarge in eu-west-1a"):
        BUNDLE.offer_trace("aws", "eu-west-1", "eu-west-1a", "p3.2xlarge", "spot")
    with pytest.raises(TraceError, match="market 'reserved': expected 'spot' or 'on_demand'"):
        BUNDLE.offer_trace("aws", "us-east-1", "us-east-1a", "p3.2xlarge", "reserved")
    with pytest.raises(TraceError, match=r"unknown region 'mars'"):
        BUNDLE.egress_usd_per_gb("us-east-1", "mars")


def test_a_broken_bundle_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="is no readable bundle"):
        load_bundle(tmp_path)
    for path in DATA_DIR.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    (tmp_path / "bundle.json").write_text(json.dumps({"format_version": 99}))
    with pytest.raises(TraceError, match="has bundle format 99, this release reads 1"):
        load_bundle(tmp_path)


def test_bundle_is_small_and_every_source_is_licensed() -> None:
    assert sum(path.stat().st_size for path in DATA_DIR.iterdir()) < 1_500_000
    for facts in BUNDLE.meta["sources"].values():
        assert facts["licence"] in ("Apache-2.0", "MIT")
        assert facts["source"].startswith("https://")


def test_fitted_workload() -> None:
    workload = load_fitted().workload
    assert workload.gang_sizes == (1, 2, 4, 8)
    assert sum(workload.gang_probabilities) == pytest.approx(1.0)
    assert len(workload.hourly_weights) == 24
    assert sum(workload.hourly_weights) == pytest.approx(1.0)
    assert 0.005 < workload.launch_failure < 0.05


def test_the_fitted_laws_follow_the_source_data() -> None:
    workload, rng = load_fitted().workload, np.random.default_rng(0)
    drawn = LognormalMixture(workload.duration_mixture).sample(rng, 100_000)
    durations = drawn[(drawn >= 600) & (drawn <= DAY_S)]
    # Philly within the bounds: quartiles 1439, 2461 and 5308 s, mean 6295 s.
    np.testing.assert_allclose(np.quantile(durations, [0.25, 0.5, 0.75]), [1439, 2461, 5308], rtol=0.08)
    assert durations.mean() == pytest.approx(6295, rel=0.05)
    assert workload.gang_probabilities[0] == pytest.approx(0.961, abs=0.005)


def test_a_broken_fit_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "fitted.json").write_text("{}")
    with pytest.raises(TraceError, match="holds no fitted parameters"):
        load_fitted(tmp_path / "fitted.json")
