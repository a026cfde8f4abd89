"""Several policies on one suite, the files that keep them, and the report page."""

import base64
import dataclasses
import io
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from matplotlib.image import imread
from rich.console import Console

from spotweave.agents.policy import Policy
from spotweave.envs.simulation.series import StepSeries
from spotweave.envs.simulation.snapshot import Category
from spotweave.envs.simulation.world import Segment, Timeline
from spotweave.training.evaluation import report
from spotweave.training.evaluation.episodes import Suite, SuitePlayer, suite_hash
from spotweave.training.evaluation.report import report_html, verdict_sentence
from spotweave.training.evaluation.runs import (
    Comparison,
    compare_policies,
    comparison_summary,
    liu_measures,
    write_episodes,
)
from spotweave.training.evaluation.tables import MOST_POLICIES, bounds, number, paired_table, signed
from spotweave.training.files import write_json
from spotweave.training.progress import PlayProgress
from tests.training.fake_world import Clairvoyant, FakeWorld, Fixed, Wanderer
from tests.training.federated.commands import rows_of


def steps(times: list[int], values: list[float]) -> StepSeries:
    return StepSeries(np.array(times, np.int64), np.array(values))


def constant(value: float) -> StepSeries:
    return steps([0], [value])


def small_timeline() -> Timeline:
    """Two executors for an hour, then four for half an hour, at 3 and then 6 USD per executor-hour."""
    return Timeline(
        cluster_names=("a", "b"),
        time_unit="s",
        end=7200.0,
        segments=(
            Segment(0, 0, 0.0, 3600.0, 2, int(Category.GENERAL), False),
            Segment(1, 0, 3600.0, 5400.0, 4, int(Category.STREAMING), True),
        ),
        capacity=(constant(5.0), constant(3.0)),
        used=(steps([0, 3600, 5400], [2.0, 4.0, 0.0]), constant(0.0)),
        price_usd_hour=(steps([0, 4500], [3.0, 6.0]), constant(0.0)),
        misses=((5400.0, 0),),
        interruptions=(),
    )


SUITE = Suite("small", "test", seed=7, episodes=12)
NAMES = {"clairvoyant", "wanderer", "zero", "<one>"}


def compared(policies: list[Policy], told: PlayProgress | None = None) -> Comparison:
    return compare_policies(SuitePlayer([FakeWorld], 4), None, policies, SUITE, told)


@pytest.fixture(scope="module")
def comparison() -> Comparison:
    return compared([Clairvoyant(), Wanderer(), Fixed(0, "zero"), Fixed(1, "<one>")])


class Structure(HTMLParser):
    """Checks that tags are balanced, and collects sources and link targets."""

    VOID = frozenset({"meta", "img", "br"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.sources: list[str] = []
        self.tables = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.sources += [value or "" for name, value in attrs if name in ("src", "href")]
        self.tables += tag == "table"
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.mark.real
def test_report_is_one_file_with_its_pictures_inside(comparison: Comparison) -> None:
    timelines = {"clairvoyant": small_timeline(), "zero": small_timeline()}
    html = report_html(comparison, timelines, {"commit": "abc123"}, "env:\n  name: fake\n")
    structure = Structure()
    structure.feed(html)
    assert structure.open == []
    assert structure.sources
    assert all(source.startswith("data:image/png;base64,") for source in structure.sources)
    # forest, sorted episodes, one distribution per metric, Gantt, over time
    assert len(structure.sources) == 2 + 3 + 2
    assert structure.tables == 1 + 3 + 1 + 1
    for text in (comparison.hash, "abc123", "name: fake", "&lt;one&gt;", "F/S/N", 'name="viewport"'):
        assert text in html
    assert "<one>" not in html
    assert "$" not in re.sub(r"base64,[^\"]*", "", html)  # no placeholder was left
    picture = imread(io.BytesIO(base64.b64decode(structure.sources[0].partition(",")[2])))
    assert picture.shape[0] > 100
    assert picture.shape[1] > 600


def test_a_report_opens_with_the_verdict_on_the_best_and_folds_the_rest(comparison: Comparison) -> None:
    many = [dataclasses.replace(comparison.runs[2], name=f"rule_{k}") for k in range(MOST_POLICIES)]
    wide = Comparison(comparison.spec, comparison.suite, comparison.hash, (*many, comparison.runs[0]))
    opening, *folded = report_html(wide, {}, {}, "x: 1\n").split("<details>")
    assert opening.index(verdict_sentence(wide)) < opening.index("<table>") < opening.index("<img ")
    assert opening.count("<tr") == 1 + MOST_POLICIES
    assert '<tr class="reference">\n<td>rule_0</td>' in opening
    assert f"<td>rule_{MOST_POLICIES - 1}</td>" in folded[0]
    assert opening.count("<img ") == 1
    assert "keeps no timeline" in "".join(folded)


@pytest.mark.real
def test_the_same_numbers_give_the_same_report(comparison: Comparison) -> None:
    names = comparison.ranking
    assert report.paired_forest(comparison, names) == report.paired_forest(comparison, names)
    assert report_html(comparison, {}, {}, "") == report_html(comparison, {}, {}, "")


def test_money_over_time_is_the_integral_of_price_over_executors() -> None:
    moments, costs = report.capacity_cost(small_timeline())
    # 2 executors x 1 h x 3 USD; 4 x 0.25 h x 3; 4 x 0.25 h x 6; then nothing
    by_hand = {0.0: 0.0, 3600.0: 6.0, 4500.0: 9.0, 5400.0: 15.0, 7200.0: 15.0}
    assert dict(zip(moments.tolist(), costs.tolist(), strict=True)) == pytest.approx(by_hand)


def test_the_sentence_groups_policies_by_verdict(comparison: Comparison) -> None:
    sentence = verdict_sentence(comparison)
    assert sentence.startswith("In score, over 12 shared episodes, clairvoyant is better than ")
    assert "not told apart" not in sentence
    swapped = Comparison(comparison.spec, comparison.suite, comparison.hash, comparison.runs[::-1])
    assert "worse than clairvoyant" in verdict_sentence(swapped)


def test_tables_mark_intervals_that_exclude_zero(comparison: Comparison) -> None:
    verdicts = [str(cell) for cell in paired_table(comparison).columns[-1].cells]
    assert verdicts == ["", "better *", "better *", "better *"]


def test_a_comparison_of_any_size_fits_on_a_screen(comparison: Comparison) -> None:
    many = [dataclasses.replace(comparison.runs[1], name=f"a_rule_with_a_long_name_{k}") for k in range(20)]
    wide = Comparison(comparison.spec, comparison.suite, comparison.hash, (comparison.runs[0], *many))
    terminal = Console(width=80, file=io.StringIO())
    terminal.print(paired_table(wide))
    assert isinstance(terminal.file, io.StringIO)
    lines = terminal.file.getvalue().splitlines()
    assert len(lines) < 20
    assert "13 more policies" in lines[-1] + lines[-2]
    assert sum("a_rule_with_a_lon…" in line for line in lines) == 7
    assert "clairvoyant" in terminal.file.getvalue()
    assert verdict_sentence(wide).count("a_rule") <= 4


def test_numbers_for_people(comparison: Comparison) -> None:
    values = (0.0, 0.01234, 1.0, -12.345, 123.44, 1234567.8)
    assert [number(x) for x in values] == ["0", "0.0123", "1.00", "-12.35", "123.4", "1,234,568"]
    assert (signed(2.0), signed(-2.0)) == ("+2.00", "-2.00")
    assert bounds(comparison.summaries["zero"]["tmdl"].interval).startswith("[")


# Runs and the files that keep them.


def test_the_reference_is_first_and_the_ranking_by_objective(comparison: Comparison) -> None:
    assert comparison.reference.name == "clairvoyant"
    assert comparison.objective == "score"
    assert comparison.ranking[0] == "clairvoyant"
    means = [comparison.summaries[name]["score"].mean for name in comparison.ranking]
    assert means == sorted(means, reverse=True)
    assert comparison.hash == suite_hash(FakeWorld(1), SUITE)


def test_pairs_are_the_same_episodes(comparison: Comparison) -> None:
    keys = SUITE.episode_keys()
    assert all([result.key for result in run.results] == keys for run in comparison.runs)
    gains = [FakeWorld.draw(key) for key in keys]
    by_hand = np.mean([drawn.max(axis=1).sum() - drawn[:, 1].sum() for drawn in gains])
    paired = comparison.paired["<one>"]
    assert paired["score"].difference == pytest.approx(by_hand)
    assert {paired[m].verdict for m in ("score", "tmdl", "ajer")} == {"better"}  # directions are respected
    assert paired["score"].win_probability == 1.0


def test_summary_holds_every_number_and_is_json(comparison: Comparison, tmp_path: Path) -> None:
    made = comparison_summary(comparison, {"commit": "abc"})
    write_json(tmp_path / "summary.json", made)
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary == made
    assert summary["commit"] == "abc"
    assert summary["suite"]["hash"] == comparison.hash
    assert summary["reference"] == "clairvoyant"
    assert set(summary["policies"]) == NAMES
    metric = summary["policies"]["<one>"]["metrics"]["tmdl"]
    assert set(metric) >= {"mean", "sd", "p95", "p99", "interval", "iqm"}
    assert metric["interval"][0] <= metric["mean"] <= metric["interval"][1]
    assert set(summary["policies"]["<one>"]["decision_latency"]) == {"p50_ms", "p99_ms", "decisions"}
    assert set(summary["paired"]) == NAMES - {"clairvoyant"}
    assert set(summary["paired"]["<one>"]["score"]) >= {"difference", "interval", "win_probability", "ratio"}


def test_csv_has_a_row_per_policy_and_episode_that_reads_back(comparison: Comparison, tmp_path: Path) -> None:
    write_episodes(comparison, tmp_path / "episodes.csv")
    rows = rows_of(tmp_path / "episodes.csv")
    assert len(rows) == 4 * 12
    columns = ["policy", "episode", "seed", "split", "decisions", "return", "score", "tmdl", "ajer"]
    assert list(rows[0]) == columns
    for policy in NAMES:
        read = [float(row["score"]) for row in rows if row["policy"] == policy]
        assert read == comparison.values(policy, "score").tolist()


def test_dominance_uses_both_metrics_and_scores_need_ajdr(comparison: Comparison) -> None:
    measures = liu_measures(comparison)
    assert set(measures) == NAMES - {"clairvoyant"}
    counts = [int(count) for count in str(measures["<one>"]["fsn"]).split("/")]
    assert sum(counts) == 12
    ours, theirs = (comparison.values(name, "tmdl") for name in ("clairvoyant", "<one>"))
    # The clairvoyant's AJER is lower in every episode, so full dominance is fewer misses.
    assert counts[0] == (ours < theirs).sum()
    assert measures["<one>"]["scores"] is None


def test_without_a_policy_nothing_is_measured() -> None:
    with pytest.raises(ValueError, match="no policy to measure"):
        compared([])


def test_progress_names_the_policy() -> None:
    seen: list[tuple[str, int, int]] = []
    compared([Clairvoyant()], told=lambda *step: seen.append(step))
    assert seen[-1] == ("clairvoyant", 12, 12)
