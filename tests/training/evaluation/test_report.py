"""The report page: complete, self-contained, the same for the same numbers."""

import base64
import dataclasses
import io
import re
from html.parser import HTMLParser

import numpy as np
import pytest
from matplotlib.image import imread
from rich.console import Console

from envs.simulation.series import StepSeries
from envs.simulation.snapshot import Category
from envs.simulation.timeline import Segment, Timeline
from tests.training.fake_world import Clairvoyant, FakeWorld, Fixed, Wanderer
from training.evaluation import report_plots
from training.evaluation.episodes import Suite
from training.evaluation.report import report_html, verdict_sentence
from training.evaluation.runs import Comparison, compare_policies
from training.evaluation.tables import bounds, number, paired_table, signed


def constant(value: float) -> StepSeries:
    return StepSeries(np.zeros(1, np.int64), np.array([value]))


def steps(times: list[int], values: list[float]) -> StepSeries:
    return StepSeries(np.array(times, np.int64), np.array(values))


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


@pytest.fixture(scope="module")
def comparison() -> Comparison:
    suite = Suite("small", "test", seed=7, episodes=12)
    policies = [Clairvoyant(), Wanderer(), Fixed(0, "zero"), Fixed(1, "<one>")]
    return compare_policies(FakeWorld(4), policies, suite)


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


def test_report_without_timelines_says_so(comparison: Comparison) -> None:
    html = report_html(comparison, {}, {}, "x: 1\n")
    assert "keeps no timeline" in html


@pytest.mark.real
def test_the_same_numbers_give_the_same_report(comparison: Comparison) -> None:
    assert report_plots.paired_forest(comparison) == report_plots.paired_forest(comparison)
    assert report_html(comparison, {}, {}, "") == report_html(comparison, {}, {}, "")


def test_money_over_time_is_the_integral_of_price_over_executors() -> None:
    moments, costs = report_plots.capacity_cost(small_timeline())
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
    table = paired_table(comparison)
    assert table.row_count == 4
    assert [str(cell) for cell in table.columns[-1].cells] == [
        "",
        "better *",
        "better *",
        "better *",
    ]


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


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (0.01234, "0.0123"),
        (1.0, "1.00"),
        (-12.345, "-12.35"),
        (123.44, "123.4"),
        (1234567.8, "1,234,568"),
    ],
)
def test_numbers_for_people(value: float, text: str) -> None:
    assert number(value) == text


def test_signs_and_bounds(comparison: Comparison) -> None:
    assert signed(2.0) == "+2.00"
    assert signed(-2.0) == "-2.00"
    assert bounds(comparison.summaries["zero"]["tmdl"].interval).startswith("[")
