"""The shipped bundle and fitted figures against the facts stated with the raw recordings."""

from __future__ import annotations

import gzip
import json
import struct
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from spotweave.agents.named import named_rule
from spotweave.envs.market_data import build_market
from spotweave.envs.simulation.availability import LognormalMixture
from spotweave.envs.simulation.market.config import MarketConfig, MarketWorldConfig, WorkloadConfig
from spotweave.envs.simulation.market.world import MarketWorld
from spotweave.envs.simulation.series import StepSeries
from spotweave.envs.traces.bundle import DATA_DIR, DAY_S, OWNED_REGION, SPLIT_DAYS, load_bundle, load_fitted
from spotweave.envs.traces.command import main
from spotweave.envs.traces.format import MarketTrace
from spotweave.envs.traces.images import load_digits, load_images
from spotweave.envs.traces.storage import TraceError
from spotweave.training.evaluation.episodes import find_suite, run_suite
from tests.envs.traces_cases import entry, imported, importing, refusal, series_of, write

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


def test_zones_of_a_region_fail_together_and_one_is_nearly_always_up() -> None:
    up = states()
    assert up.max(axis=0).mean() == pytest.approx(0.992, abs=0.0005)
    correlation = np.asarray(np.corrcoef(up))
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


def test_the_fitted_laws_follow_the_source_data() -> None:
    workload, rng = load_fitted().workload, np.random.default_rng(0)
    drawn = LognormalMixture(workload.duration_mixture).sample(rng, 100_000)
    durations = drawn[(drawn >= 600) & (drawn <= DAY_S)]
    # Philly within the bounds: quartiles 1439, 2461 and 5308 s, mean 6295 s.
    np.testing.assert_allclose(np.quantile(durations, [0.25, 0.5, 0.75]), [1439, 2461, 5308], rtol=0.08)
    assert durations.mean() == pytest.approx(6295, rel=0.05)
    assert workload.gang_sizes == (1, 2, 4, 8)
    assert workload.gang_probabilities[0] == pytest.approx(0.961, abs=0.005)
    assert sum(workload.gang_probabilities) == pytest.approx(1.0)
    assert len(workload.hourly_weights) == 24
    assert sum(workload.hourly_weights) == pytest.approx(1.0)
    assert 0.005 < workload.launch_failure < 0.05


def test_a_broken_fit_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "fitted.json").write_text("{}")
    with pytest.raises(TraceError, match="holds no fitted parameters"):
        load_fitted(tmp_path / "fitted.json")


# Imports get the on-demand offers and the prices that their files lack, and become markets.


DAYS = 40
PROBED = "--polarity unavailable --start-utc 2022-10-01 --instance-type p3.2xlarge"


def probed(folder: Path, zone: str) -> Path:
    """A SkyPilot-style file of 40 days; a 1 means preempted there."""
    data = [0 if probe // 36 % 3 else 1 for probe in range(DAYS * 144)]
    return write(folder / f"{zone}.json", {"metadata": {"gap_seconds": 600}, "data": data})


def by_place(traces: Sequence[MarketTrace]) -> dict[str, MarketTrace]:
    """By zone, or region."""
    return {trace.meta.zone or trace.meta.region: trace for trace in traces}


def table(folder: Path, *rows: str) -> Path:
    return write(folder / "m.csv", "\n".join(rows) + "\n")


def market(folder: Path, owned: int = 0) -> MarketWorld:
    settings = MarketConfig(traces=str(folder / "market"), owned_executors=owned)
    return build_market(MarketWorldConfig(WorkloadConfig(jobs=6), settings), 2)


def refused(capsys: pytest.CaptureFixture[str], folder: Path, command: list[str]) -> str:
    """The one line of an import that leaves nothing behind."""
    before = sorted(path.name for path in folder.iterdir())
    line = refusal(capsys, *command)
    assert sorted(path.name for path in folder.iterdir()) == before
    return line


def test_on_demand_offers_have_the_prices_of_the_list(tmp_path: Path) -> None:
    zones = [probed(tmp_path, zone) for zone in ("us-west-2a", "us-west-2b", "us-east-1f")]
    found = by_place(imported("skypilot", *zones, options=f"{PROBED} --price 30%"))
    assert set(found) == {"us-west-2a", "us-west-2b", "us-east-1f", "us-west-2", "us-east-1"}
    for region in ("us-west-2", "us-east-1"):
        trace = found[region]
        assert trace.meta.offer == ("aws", region, "", "p3.2xlarge", "on_demand")
        # The list price of a p3.2xlarge in the United States.
        assert series_of(trace)[1:] == (None, [3.06])
        assert load_bundle().on_demand_usd_hour("aws", region, "p3.2xlarge") == 3.06
        assert "karpenter" in trace.meta.source
        assert trace.meta.licence == "Apache-2.0"
    spot = found["us-west-2a"].price_usd_hour
    assert spot is not None
    assert np.allclose(spot, 0.3 * 3.06)


def test_the_list_of_google_cloud_is_by_region(tmp_path: Path) -> None:
    rows = ("0,europe-west4-a,1,1.2", "0,us-central1-a,1,1.4", "9,us-central1-a,1,1.4")
    options = "--provider gcp --instance-type a2-highgpu-1g --polarity available"
    source = table(tmp_path, "time,zone,available,price", *rows)
    found = by_place(imported("csv", source, options=options))
    for region in ("europe-west4", "us-central1"):
        price = load_bundle().on_demand_usd_hour("gcp", region, "a2-highgpu-1g")
        assert found[region].price_usd_hour == pytest.approx(price)
    assert found["europe-west4"].price_usd_hour != pytest.approx(found["us-central1"].price_usd_hour)


def test_a_price_is_given_for_what_the_list_lacks(tmp_path: Path) -> None:
    """The type that the list has keeps the list's price."""
    source = table(tmp_path, "time,zone,available,price", "0,eu-north-1a,1,1.2", "0,us-east-1a,1,1.4")
    options = "--instance-type p3.2xlarge --polarity available --on-demand 3.5"
    found = by_place(imported("csv", source, options=options))
    assert found["eu-north-1"].price_usd_hour == pytest.approx(3.5)
    assert found["us-east-1"].price_usd_hour == pytest.approx(3.06)
    assert found["eu-north-1"].meta.source == "given as --on-demand"


def test_an_on_demand_offer_of_the_files_own_is_kept(tmp_path: Path) -> None:
    source = table(tmp_path, "time,zone,price", "0,us-east-1,2.9")
    (trace,) = imported("csv", source, options="--instance-type p3.2xlarge --market on_demand")
    assert trace.price_usd_hour == pytest.approx(2.9)


@pytest.mark.parametrize(
    ("more", "line"),
    [
        (
            "--instance-type x9.large",
            "the price list has no on-demand price of aws x9.large in us-west-2: give it in USD an hour, "
            "e.g. --on-demand 3.06, or --on-demand none",
        ),
        ("", "no instance type is named in us-west-2a, so its on-demand price is unknown: give --inst"),
        ("--instance-type x9.large --on-demand none --price 30%", "has no on-demand price of"),
        (
            "--instance-type p3.2xlarge --on-demand 2.5",
            "--on-demand 2.5 is for instance types that the price list does not have, and it has all",
        ),
    ],
)
def test_prices_that_nobody_knows_are_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], more: str, line: str
) -> None:
    options = f"--polarity unavailable --start-utc 2022-10-01 {more}"
    command = importing("skypilot", probed(tmp_path, "us-west-2a"), options=options)
    assert line in refused(capsys, tmp_path, command)


def test_other_mistakes_are_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = importing("csv", table(tmp_path, "time,zone,price", "0,us-east-1a,1.4"))
    assert "the file holds prices: leave --price out" in refused(capsys, tmp_path, [*command, "--price", "1"])
    for words in ("--on-demand cheap", "--on-demand -3", "--price 0", "--price nan%"):
        option, value = words.split()
        with pytest.raises(SystemExit) as stopped:
            main([*command, option, value])
        assert stopped.value.code == 2
        error = capsys.readouterr().err
        assert error.count("\n") == 1
        assert f"argument {option}: {value!r}: expected" in error


def test_what_lacks_spot_prices_says_how_to_give_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    imported("skypilot", probed(tmp_path, "us-west-2a"), options=PROBED)
    assert "import it again with --price" in capsys.readouterr().out


@pytest.mark.parametrize("owned", [0, 4])
def test_a_rule_uses_the_on_demand_offers_of_an_imported_market(tmp_path: Path, owned: int) -> None:
    imported("skypilot", probed(tmp_path, "us-west-2a"), options=f"{PROBED} --price 0.92")
    world = market(tmp_path, owned)
    clouds = {"aws/us-west-2a/p3.2xlarge/spot", "aws/us-west-2/p3.2xlarge/on_demand"}
    assert set(world.spec.cluster_names) == clouds | ({"owned/us-east-1"} if owned else set())
    for rule in ("on_demand", "expected_cost"):
        results = run_suite(world, named_rule(rule), find_suite("test", 2))
        assert all(result.metrics["unfinished"] == 0 for result in results)
        if rule == "on_demand":
            assert all(result.metrics["on_demand_usd"] > 0 for result in results)


def test_prices_of_several_zones_without_availability_are_a_market(tmp_path: Path) -> None:
    rows = [
        f"{day * 86_400 + 60 * k},us-east-1{z},{1 + day / 100}"
        for k, z in enumerate("ab")
        for day in range(DAYS)
    ]
    imported("csv", table(tmp_path, "time,zone,price", *rows), options="--instance-type p3.2xlarge")
    world = market(tmp_path)
    assert "aws/us-east-1/p3.2xlarge/on_demand" in world.spec.cluster_names
    results = run_suite(world, named_rule("expected_cost"), find_suite("test", 2))
    assert all(result.metrics["unfinished"] == 0 for result in results)


def history(path: Path, *rows: tuple[str, str, str]) -> Path:
    entries = [
        entry(zone, f"2026-03-{moment}:00:00+00:00", price, InstanceType="g4dn.xlarge")
        for zone, moment, price in rows
    ]
    return write(path, {"SpotPriceHistory": entries})


def test_pages_of_one_price_history_are_one_trace(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    both = ("us-east-1a", "01T12", "0.1560")
    first = history(
        tmp_path / "page1.json", both, ("us-east-1a", "01T10", "0.1550"), ("us-east-1b", "01T11", "0.1590")
    )
    second = history(
        tmp_path / "page2.json", both, ("us-east-1a", "01T15", "0.1578"), ("us-east-1b", "01T16", "0.1601")
    )
    found = by_place(imported("ec2-price-history", first, second, options="--on-demand none"))
    assert "availability of spot capacity from spells" in capsys.readouterr().out
    assert series_of(found["us-east-1a"]) == ([0, 7200, 18_000], None, [0.1550, 0.1560, 0.1578])
    assert found["us-east-1b"].times_s.tolist() == [3600, 21_600]
    other = history(tmp_path / "page3.json", ("us-east-1a", "01T12", "0.2"))
    command = importing("ec2-price-history", first, other)
    command[command.index("--out") + 1] = str(tmp_path / "n")
    assert "page1.json and" in refused(capsys, tmp_path, command)


# Images of a folder, or of the package.


def idx(content: np.ndarray) -> bytes:
    """An IDX file as its description says: magic number with type 8 (bytes), sizes big-endian, bytes."""
    return struct.pack(f">BBBB{content.ndim}I", 0, 0, 8, content.ndim, *content.shape) + content.tobytes()


def write_mnist(folder: Path, part: str, count: int, *, compress: bool) -> np.ndarray:
    images = np.random.default_rng(count).integers(0, 256, (count, 28, 28), dtype=np.uint8)
    labels = (np.arange(count) % 10).astype(np.uint8)
    for name, content in ((f"{part}-images-idx3-ubyte", images), (f"{part}-labels-idx1-ubyte", labels)):
        data = idx(content)
        (folder / (name + ".gz" * compress)).write_bytes(gzip.compress(data) if compress else data)
    return images


def test_the_digits_of_the_package() -> None:
    images, labels = load_digits()
    assert images.shape == (2000, 28, 28)
    assert images.min() == 0
    assert images.max() == 1
    # The MNIST test set begins with these.
    assert labels[:10].tolist() == [7, 2, 1, 0, 4, 1, 4, 9, 5, 9]
    loaded = load_images(None)
    assert loaded.training.shape == (1500, 1, 28, 28)
    assert np.array_equal(loaded.test[:, 0], images[1500:])


@pytest.mark.parametrize("compress", [False, True])
def test_a_test_set_alone_is_divided(tmp_path: Path, compress: bool) -> None:
    images = write_mnist(tmp_path, "t10k", 10, compress=compress)
    loaded = load_images(tmp_path)
    # Every fifth, the images 4 and 9, are for tests.
    assert loaded.test_labels.tolist() == [4, 9]
    assert loaded.training_labels.tolist() == [0, 1, 2, 3, 5, 6, 7, 8]
    assert np.allclose(loaded.test[1, 0], images[9] / 255)


def test_with_a_training_set_nothing_is_divided(tmp_path: Path) -> None:
    write_mnist(tmp_path, "t10k", 10, compress=False)
    training = write_mnist(tmp_path, "train", 15, compress=True)
    loaded = load_images(tmp_path)
    assert (len(loaded.training), len(loaded.test)) == (15, 10)
    assert np.allclose(loaded.training[:, 0], training / 255)


def test_the_binary_version_of_cifar_10(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    for number, name in enumerate([*(f"data_batch_{k}.bin" for k in range(1, 6)), "test_batch.bin"]):
        rows = generator.integers(0, 256, (2, 3073), dtype=np.uint8)
        rows[:, 0] = number
        rows.tofile(tmp_path / name)
    loaded = load_images(tmp_path)
    assert loaded.training.shape == (10, 3, 32, 32)
    assert loaded.training_labels.tolist() == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]
    # A row is its label, then the red, the green and the blue channel, line by line.
    assert loaded.test[1, 2, 0, 1] == np.float32(rows[1, 1 + 2 * 1024 + 1] / 255)
    (tmp_path / "data_batch_3.bin").unlink()
    with pytest.raises(ValueError, match=r"data_batch_3\.bin is missing"):
        load_images(tmp_path)


def test_a_damaged_or_empty_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="has neither"):
        load_images(tmp_path)
    write_mnist(tmp_path, "t10k", 10, compress=False)
    whole = (tmp_path / "t10k-images-idx3-ubyte").read_bytes()
    (tmp_path / "t10k-images-idx3-ubyte").write_bytes(whole[:-1])
    with pytest.raises(ValueError, match="no whole IDX file"):
        load_images(tmp_path)
    (tmp_path / "t10k-images-idx3-ubyte").write_bytes(idx(np.zeros((9, 28, 28), np.uint8)))
    with pytest.raises(ValueError, match="9 t10k images but 10 labels"):
        load_images(tmp_path)
    (tmp_path / "t10k-labels-idx1-ubyte").unlink()
    with pytest.raises(ValueError, match="lacks t10k-labels-idx1-ubyte"):
        load_images(tmp_path)
    (tmp_path / "t10k-labels-idx1-ubyte.gz").write_bytes(b"not gzip")
    with pytest.raises(ValueError, match="cannot be read"):
        load_images(tmp_path)
