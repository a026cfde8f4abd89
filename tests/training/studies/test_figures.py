"""What figures show, before it is drawn, and that every kind can be drawn."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle

from spotweave.envs.simulation.snapshot import Category
from spotweave.envs.simulation.world import Segment, Timeline
from spotweave.training.canvas import save
from spotweave.training.config import UsageError
from spotweave.training.evaluation.episodes import Suite
from spotweave.training.studies.evaluations import EvaluationCache
from spotweave.training.studies.experiment import FigureSettings, ScenarioSettings
from spotweave.training.studies.figures import (
    BINS,
    category_counts,
    dominance_points,
    draw_bars,
    draw_category_counts,
    draw_dominance,
    draw_figure,
    draw_job_scatter,
    draw_relative,
    draw_sorted_episodes,
    draw_training_curves,
    episode_order,
    first_starts,
    read_curve,
    shown_metric,
)
from spotweave.training.studies.measuring import Player
from spotweave.training.studies.trained import Trained
from tests.training.studies.cases import result, settings, with_five_seeds
from tests.training.studies.test_bounds import bounded


def heights(line: Line2D) -> list[float]:
    """What a line shows."""
    values: list[float] = np.asarray(line.get_ydata(), np.float64).tolist()
    return values


def segment(job: int, cluster: int, start: float, category: Category) -> Segment:
    return Segment(job, cluster, start, start + 5.0, 1, int(category), False)


TIMELINE = Timeline(
    cluster_names=("a", "b"),
    time_unit="slice",
    end=30.0,
    segments=(
        segment(0, 0, 0.0, Category.STREAMING),
        segment(1, 1, 4.0, Category.GENERAL),
        segment(0, 0, 9.0, Category.STREAMING),  # the second batch of job 0
        segment(2, 1, 24.0, Category.GENERAL),
    ),
    capacity=(),
    used=(),
    price_usd_hour=(),
)


def test_episodes_are_sorted_from_high_to_low_by_the_mean_over_seeds() -> None:
    assert episode_order(result(), "maf", "tmdl").tolist() == [1, 0, 2]
    assert episode_order(result(), "mine", "ajer").tolist() == [1, 2, 0]


def test_sorted_episodes_draw_the_mean_and_the_range_of_seeds() -> None:
    figure = FigureSettings(
        "sorted_episodes",
        "",
        metrics=["tmdl", "s_log"],
        policies=["mine", "maf"],
        sort_policy="maf",
        sort_metric="tmdl",
    )
    drawn = draw_sorted_episodes(settings(), figure, {"base": result()})
    first = drawn.axes[0]
    assert [heights(line) for line in first.lines] == [[25.0, 15.0, 35.0], [50.0, 40.0, 30.0]]
    assert len(first.collections) == 1  # a rule has no range of seeds
    assert first.get_ylabel() == "TMDL, missed deadlines (L)"
    assert drawn.axes[1].get_ylabel() == "S_log (H)"


def test_dominance_gives_two_points_for_both_and_one_for_one() -> None:
    policies = result().policies
    assert dominance_points(policies["mine"], policies["maf"]).tolist() == [[2, 1, 1], [2, 1, 1]]
    figure = FigureSettings("dominance", "", policies=["mine", "maf"])
    drawn = draw_dominance(settings(), figure, {"base": result()})
    assert heights(drawn.axes[1].lines[0]) == [2, 1, 1]
    assert [bar.get_bbox().height for bar in drawn.axes[2].patches if isinstance(bar, Rectangle)] == [1, 2, 0]


def test_every_figure_takes_agents_with_different_numbers_of_seeds() -> None:
    results = {"base": with_five_seeds(result(), [[k, 50, 20] for k in range(5)], [100, 101, 102])}
    figure = FigureSettings("dominance", "", policies=["ours", "mine", "maf"])
    drawn = draw_dominance(settings(), figure, results)
    # Against MAF (40 50 30; 104 103 106) every seed wins both, the delay only, both.
    assert heights(drawn.axes[1].lines[0]) == [2, 2, 1]
    lines = dataclasses.replace(figure, kind="sorted_episodes", metrics=["tmdl"])
    shown = draw_sorted_episodes(
        settings(), dataclasses.replace(lines, sort_policy="ours", sort_metric="tmdl"), results
    )
    assert heights(shown.axes[0].lines[0]) == [50, 20, 2]


def test_other_weights_have_no_training_curve(tmp_path: Path) -> None:
    player = Player(settings(), Suite("test", "test", 1, 3), EvaluationCache(tmp_path, "v1"))
    figure = FigureSettings("training_curves", "", metrics=["s_log"])
    agents = {"base": {"mine": [Trained(tmp_path / "policy.pt", (1.0,))]}}
    with pytest.raises(UsageError, match="mine has other weights than in training: it has no curve"):
        draw_figure(player, figure, {"base": result()}, agents)


def test_a_job_is_one_point_where_its_first_execution_began() -> None:
    assert [(job.start, job.cluster) for job in first_starts(TIMELINE)] == [(0.0, 0), (4.0, 1), (24.0, 1)]
    assert [job.start for job in first_starts(TIMELINE, Category.GENERAL)] == [4.0, 24.0]


def test_counts_per_cluster_over_time() -> None:
    counts = category_counts(first_starts(TIMELINE, Category.GENERAL), 2, 24.0)
    assert counts.shape == (2, BINS)
    assert counts[0].sum() == 0
    assert np.flatnonzero(counts[1]).tolist() == [4, BINS - 1]  # the last moment belongs to the last bin


def test_patterns_are_drawn(tmp_path: Path) -> None:
    scatter = draw_job_scatter(settings(), {"mine": TIMELINE, "maf": TIMELINE})
    assert len(scatter.axes) == 8
    assert sum(len(heights(line)) for line in scatter.axes[0].lines) == 3
    polar = draw_category_counts(settings(), {"mine": TIMELINE})
    assert len(polar.axes) == 3
    save(polar, tmp_path / "a.png")
    save(draw_category_counts(settings(), {"mine": TIMELINE}), tmp_path / "b.png")
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()


def run(directory: Path, episodes: list[int], tmdl: list[float], size: int = 4, ajdr: float = 2.0) -> Path:
    directory.mkdir()
    rows = [f"{e},{10 * e},{t},{ajdr}" for e, t in zip(episodes, tmdl, strict=True)]
    (directory / "validation.csv").write_text("\n".join(["episode,decisions,tmdl,ajdr", *rows]) + "\n")
    (directory / "config.yaml").write_text(f"trainer: {{validation_episodes: {size}}}\n")
    return directory / "policy.pt"


def test_curves_are_read_over_seeds(tmp_path: Path) -> None:
    curve = read_curve([run(tmp_path / "a", [10, 20], [5, 4]), run(tmp_path / "b", [10, 20], [7, 6])])
    assert curve.episodes.tolist() == [10, 20]
    assert curve.metrics["tmdl"].tolist() == [[5, 4], [7, 6]]
    assert set(curve.metrics) == {"tmdl", "ajdr"}
    assert curve.validation_episodes == 4
    # Eq. 4.9 of the means: 1 / (0.02 * 5 + 2).
    assert shown_metric(curve.metrics, "eval_app")[0, 0] == pytest.approx(1 / 2.1)
    base = result()
    spec = dataclasses.replace(
        base.spec, metrics=("tmdl", "ajdr", "eval_app"), higher_is_better=(False, False, True)
    )
    figure = FigureSettings("training_curves", "", metrics=["eval_app"])
    drawn = draw_training_curves(
        settings(),
        figure,
        {"base": dataclasses.replace(base, spec=spec)},
        {"base": {"mine": curve}},
        {"base": {"maf": base.policies["maf"].seeds[0]}},
    )
    curve_line, level = drawn.axes[0].lines
    assert heights(curve_line)[0] == pytest.approx((1 / 2.1 + 1 / 2.14) / 2)
    # MAF: mean TMDL 40, mean AJDR 13 / 3.
    assert heights(level)[0] == pytest.approx(1 / (0.8 + 13 / 3))


def curves_figure(tmp_path: Path, lengths: dict[str, list[int]]) -> Figure:
    """Agents without a miss or a delay, trained for different times."""
    curves = {
        name: read_curve([run(tmp_path / name, episodes, [0.0] * len(episodes), ajdr=0.0)])
        for name, episodes in lengths.items()
    }
    base = result()
    spec = dataclasses.replace(base.spec, metrics=("eval_app",), higher_is_better=(True,))
    results = {key: dataclasses.replace(base, spec=spec) for key in ("base", "more")}
    asked = settings(scenarios={key: ScenarioSettings(key, []) for key in results})
    figure = FigureSettings("training_curves", "", metrics=["eval_app"])
    by_scenario = {"base": {"mine": curves["mine"]}, "more": {"ours": curves["ours"], "mine": curves["mine"]}}
    rules = {key: {"maf": base.policies["maf"].seeds[0]} for key in results}
    return draw_training_curves(asked, figure, results, by_scenario, rules)


def test_a_policy_has_one_colour_and_one_place_in_the_legend(tmp_path: Path) -> None:
    drawn = curves_figure(tmp_path, {"mine": [10, 20], "ours": [10, 20]})
    first, second = drawn.axes
    assert first.lines[0].get_color() == second.lines[1].get_color() != second.lines[0].get_color()
    assert [text.get_text() for text in drawn.legends[0].get_texts()] == ["Mine", "MAF", "ours"]
    assert heights(first.lines[0]) == [50.0, 50.0]  # nothing missed: as high as the metric goes


@pytest.mark.parametrize(("longest", "scale"), [(80, "linear"), (2000, "log")])
def test_trainings_of_very_different_length_share_an_axis(tmp_path: Path, longest: int, scale: str) -> None:
    drawn = curves_figure(tmp_path, {"mine": [10, 20], "ours": [10, longest]})
    assert [axis.get_xscale() for axis in drawn.axes] == ["linear", scale]


@pytest.mark.parametrize(("episodes", "size"), [([10, 30], 4), ([10, 20], 5)])
def test_curves_that_do_not_match_are_refused(tmp_path: Path, episodes: list[int], size: int) -> None:
    runs = [run(tmp_path / "a", [10, 20], [5, 4]), run(tmp_path / "b", episodes, [7, 6], size)]
    with pytest.raises(UsageError, match="do not match"):
        read_curve(runs)


def test_relative_costs_have_a_mark_for_the_clairvoyant_plan() -> None:
    figure = FigureSettings("relative", "", policies=["mine"])
    asked = settings(metrics=["tmdl"])
    drawn = draw_relative(asked, figure, {"base": bounded()})
    (marks,) = [line for line in drawn.axes[0].lines if line.get_marker() == "D"]
    # TMDL on the first two episodes: the plan's 4 and 6 against MAF's 40 and 50.
    assert np.asarray(marks.get_xdata()).tolist() == pytest.approx([-100.0 * 80 / 90])
    without = draw_relative(asked, figure, {"base": result()})
    assert not [line for line in without.axes[0].lines if line.get_marker() == "D"]


def test_a_released_policy_has_no_curve(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"validation\.csv is missing"):
        read_curve([tmp_path / "policy.pt"])


def test_bars_are_as_long_as_the_means_over_seeds_and_episodes() -> None:
    figure = FigureSettings("bars", "", policies=["mine", "maf"])
    (axis,) = draw_bars(settings(metrics=["tmdl"]), figure, {"base": result()}).axes
    assert [bar.get_width() for bar in axis.patches if isinstance(bar, Rectangle)] == [25, 40]
    assert [text.get_text() for text in axis.texts] == ["25", "40"]
