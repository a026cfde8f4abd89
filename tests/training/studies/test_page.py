"""The page of a study: filled from stored summaries, and in this repository never other than these."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from spotweave.training.config import UsageError
from spotweave.training.evaluation.episodes import Suite
from spotweave.training.files import write_json
from spotweave.training.studies.asynchronous import __main__ as asynchronous
from spotweave.training.studies.bags import __main__ as bags
from spotweave.training.studies.experiment import FigureSettings
from spotweave.training.studies.page import Page, differing, filled, marked_experiments, publish
from spotweave.training.studies.scenario import experiment_summary, write_experiment_episodes
from spotweave.training.studies.workflows import __main__ as workflows
from tests.training.studies.cases import result, settings
from tests.training.studies.test_bounds import bounded

ROOT = Path(__file__).resolve().parents[3]
RESULTS = ROOT / "docs" / "results"
PAGES = [RESULTS / f"{study}.md" for study in ("comparators", "liu2022", "markets")]
SECTIONED = [
    *(Page(ROOT / study.PAGE, study.COMMAND, study.SECTIONS) for study in (bags, workflows)),
    replace(asynchronous.page(None, seeds=3), path=ROOT / asynchronous.PAGE),
]
PAGE = """# Title

Prose.

<!-- table_1 -->
old
<!-- end -->

More prose.

<!-- figure_2 -->
<!-- end -->
"""


@pytest.fixture
def page(tmp_path: Path) -> Path:
    """A page of markers, beside it what an experiment leaves in its folder."""
    page, folder = tmp_path / "toy.md", tmp_path / "results" / "table_1"
    page.write_text(PAGE)
    figure = FigureSettings("dominance", "A picture.")
    asked = settings(figures={"picture": figure})
    folder.mkdir(parents=True)
    summary = experiment_summary(asked, Suite("test", "test", 1, 3), {"base": result()}, "the command")
    write_json(folder / "summary.json", summary)
    write_experiment_episodes(asked, {"base": result()}, folder / "shown.csv", every_metric=False)
    (folder / "picture.png").write_bytes(b"png")
    return page


def test_only_what_stands_between_markers_is_made_anew() -> None:
    page = filled(PAGE, lambda name: f"new {name}")
    assert page == PAGE.replace("old\n", "new table_1\n").replace(
        "<!-- figure_2 -->\n", "<!-- figure_2 -->\nnew figure_2\n"
    )
    assert filled(page, lambda name: f"new {name}") == page
    assert marked_experiments(page) == ["table_1", "figure_2"]


@pytest.mark.parametrize(
    "page",
    [
        "<!-- table_1 -->\nopen\n",
        "<!-- table_1 -->\n<!-- table_2 -->\n<!-- end -->\n",
        "<!-- table_1 -->\n<!-- end -->\n<!-- table_1 -->\n<!-- end -->\n",
    ],
)
def test_a_broken_marker_is_refused(page: str) -> None:
    with pytest.raises(UsageError, match="needs one <!-- end -->"):
        filled(page, str)


def test_publishing_stores_everything_and_the_page_follows(page: Path, tmp_path: Path) -> None:
    assert publish(page, tmp_path / "results") == ["table_1"]
    stored = sorted(path.name for path in page.with_suffix("").iterdir())
    assert stored == ["picture.png", "table_1.csv", "table_1.json"]
    text = page.read_text()
    assert "| **Mine** | 2 | 25.00 (20.00 to 30.00) |" in text
    assert "Not measured yet: `python training/compare.py +experiment=toy/figure_2`." in text
    assert "old" not in text
    assert differing(page) == []
    header, first = (page.with_suffix("") / "table_1.csv").read_text().splitlines()[:2]
    assert header == "scenario,policy,seed,episode,tmdl,ajer"
    assert first == "base,mine,0,0,10,101"


def test_the_episodes_behind_the_bounds_are_stored(tmp_path: Path) -> None:
    file = tmp_path / "shown.csv"
    write_experiment_episodes(settings(metrics=["tmdl", "s"]), {"base": bounded()}, file, every_metric=False)
    rows = file.read_text().splitlines()
    assert rows[0] == "scenario,policy,seed,episode,tmdl,s"
    assert rows[-5:] == [
        "base,clairvoyant plan,,0,4,-4",
        "base,clairvoyant plan,,1,6,-6",
        'base,"no waiting, no misses",,0,,0.0',
        'base,"no waiting, no misses",,1,,10.0',
        'base,"no waiting, no misses",,2,,20.0',
    ]


def test_a_number_changed_by_hand_is_found(page: Path, tmp_path: Path) -> None:
    publish(page, tmp_path / "results")
    page.write_text(page.read_text().replace("25.00 (20", "24.00 (20"))
    assert differing(page) == ["table_1"]
    summary = tmp_path / "toy" / "table_1.json"
    publish(page, tmp_path / "results")
    held = json.loads(summary.read_text())
    held["scenarios"]["base"]["policies"]["mine"]["metrics"]["tmdl"]["mean"] = 24.0
    summary.write_text(json.dumps(held))
    assert differing(page) == ["table_1"]


def test_an_incomplete_result_is_refused(page: Path, tmp_path: Path) -> None:
    (tmp_path / "results" / "table_1" / "picture.png").unlink()
    with pytest.raises(UsageError, match=r"lacks picture.png: measure it again with the command"):
        publish(page, tmp_path / "results")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_pages_of_this_repository_show_every_experiment_and_say_what_was_measured(page: Path) -> None:
    assert differing(page) == []
    folder = ROOT / "configs" / "experiment" / page.stem
    experiments = {path.stem for path in folder.glob("*.yaml") if path.stem.startswith(("table_", "figure_"))}
    assert set(marked_experiments(page.read_text(encoding="utf-8"))) == experiments


@pytest.mark.parametrize("page", SECTIONED, ids=lambda page: page.path.stem)
def test_a_page_of_sections_holds_what_is_stored(page: Page) -> None:
    assert page.text() == page.path.read_text(encoding="utf-8")
    assert all(page.file(name).is_file() for name in page.sections)


# `make results-liu2022`: one command that goes as far as it can, and says what is missing.


EXPERIMENTS = sorted(
    path.stem
    for path in (ROOT / "configs" / "experiment" / "liu2022").glob("*.yaml")
    if path.stem.startswith(("table_", "figure_"))
)
PYTHON = """#!/bin/bash
echo "$@" >> "{log}"
case "$*" in
{cases}
esac
"""


def make(tmp_path: Path, **codes: int) -> tuple[subprocess.CompletedProcess[str], list[str]]:
    """The target with a Python that only writes down what it is asked; codes by a word of the command."""
    log = tmp_path / "log"
    (tmp_path / "bin").mkdir()
    cases = "\n".join(f'*{word}*) echo "error: {word}" >&2; exit {code};;' for word, code in codes.items())
    python = tmp_path / "bin" / "python"
    python.write_text(PYTHON.format(log=log, cases=cases))
    python.chmod(0o755)
    for stamp in (".made", ".core"):
        (tmp_path / stamp).touch()
    done = subprocess.run(
        ["make", "-C", str(ROOT), "results-liu2022", f"VENV={tmp_path}", "ARGS=workers=4"],
        capture_output=True,
        text=True,
        check=False,
    )
    return done, log.read_text().splitlines()


@pytest.mark.parametrize(
    ("codes", "begun", "published"),
    [
        ({}, EXPERIMENTS, True),
        ({"repeat": 1}, EXPERIMENTS, True),  # a failed training is no success even if everything is measured
        ({"repeat": 1, "figure_4_4": 2, "table_4_2": 2}, EXPERIMENTS, True),
        ({"repeat": 2}, [], False),
        ({"repeat": 130}, [], False),
        ({"figure_4_5": 130}, EXPERIMENTS[: EXPERIMENTS.index("figure_4_5") + 1], False),
    ],
    ids=["all", "no training", "no experiment", "a mistake", "Ctrl-C in training", "Ctrl-C in measuring"],
)
def test_make_goes_as_far_as_it_can(
    codes: dict[str, int], begun: list[str], published: bool, tmp_path: Path
) -> None:
    done, calls = make(tmp_path, **codes)
    assert (done.returncode == 0) == (not codes), done.stderr
    assert calls[0] == "training/repeat.py +experiment=liu2022/trainings workers=4"
    assert [call.rpartition("/")[2] for call in calls if "compare.py" in call] == begun
    assert calls[1 + len(begun) :] == ["training/publish.py study=liu2022"] * published
    missing = [name for name, code in codes.items() if name in EXPERIMENTS and code == 2]
    assert all(f"error: {name}\n" in done.stderr for name in missing)
    assert not missing or f"not measured: {' '.join(missing)}\n" in done.stderr
