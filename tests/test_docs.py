"""The documentation is true: links lead somewhere, and the commands that it marks run.

A block marked `<!-- run WORDS -->` is one command. The test appends WORDS, so that a reader sees the command
that makes sense and the test runs it in a tiny size.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from spotweave import cli
from spotweave.envs.environments import ENVIRONMENTS
from tests.training.commands import Command, Outcome

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("**/*.md")])
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)|!\[[^\]]*\]\(([^)\s]+)\)")
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
MARKED = re.compile(r"<!-- run ?(?P<words>[^\n]*?) ?-->\n```bash\n(?P<command>.*?)```", re.DOTALL)
PYTHON = re.compile(r"<!-- run -->\n```python\n(.*?)```", re.DOTALL)


@dataclass(frozen=True)
class Marked:
    """One marked command of a page."""

    line: int
    text: str


def commands_of(page: Path) -> list[Marked]:
    """The marked commands, in order, with the test's words appended."""
    text = page.read_text(encoding="utf-8")
    return [
        Marked(text.count("\n", 0, match.start()) + 1, f"{match['command'].strip()} {match['words']}".strip())
        for match in MARKED.finditer(text)
    ]


def heading_anchors(page: Path) -> set[str]:
    """The anchors that GitHub gives to a page's headings."""
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    titles = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def broken_links(page: Path) -> list[str]:
    """Relative links of a page that lead nowhere."""
    broken = []
    for match in LINK.finditer(FENCE.sub("", page.read_text(encoding="utf-8"))):
        target = match.group(1) or match.group(2)
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        if not file.exists() or (anchor and file.suffix == ".md" and anchor not in heading_anchors(file)):
            broken.append(target)
    return broken


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_relative_link_leads_somewhere(page: Path) -> None:
    assert broken_links(page) == []


def test_a_broken_link_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# A title\n[a](page.md) [b](none.md) [c](#a-title) [d](#none) [e](https://x.org/y)\n")
    assert broken_links(page) == ["none.md", "#none"]


@pytest.fixture
def workshop(tmp_path: Path) -> Path:
    """A directory that looks like the repository's root; what commands write stays out of the repository."""
    for name in ("training", "configs", "envs", "agents", "benchmarks", "examples"):
        (tmp_path / name).symlink_to(ROOT / name)
    return tmp_path


def outcome(text: str, command: Command) -> Outcome:
    """What a marked command does, in this process: to start one for each would take most of the time."""
    words = shlex.split(text.replace("\\\n", " "))
    if words[0] == "spotweave":
        result = CliRunner().invoke(cli.app, words[1:])
        return Outcome(result.exit_code, result.stdout, result.stderr)
    assert words[0] == "python", "a marked command is one of spotweave or of training"
    return replace(command, name=Path(words[1]).stem)(*words[2:])


@pytest.mark.real
@pytest.mark.parametrize("page", [page for page in PAGES if commands_of(page)], ids=lambda page: page.stem)
def test_every_marked_command_runs(
    page: Path, workshop: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(workshop)
    for command in commands_of(page):
        done = outcome(command.text, Command(monkeypatch, capsys))
        assert done.code == 0, (
            f"{page.name}:{command.line}: {command.text}\nexited with {done.code}\n"
            f"{done.out[-2000:]}\n{done.err[-2000:]}"
        )


@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if PYTHON.search(page.read_text(encoding="utf-8"))],
    ids=lambda page: page.stem,
)
def test_every_python_block_runs(page: Path, workshop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(workshop)
    for code in PYTHON.findall(page.read_text(encoding="utf-8")):
        exec(compile(code, page.name, "exec"), {"__name__": "__main__"})


def test_getting_started_has_commands_to_run() -> None:
    assert len(commands_of(ROOT / "docs" / "getting-started.md")) >= 5


def test_the_navigation_of_the_site_lists_every_page_once() -> None:
    nav = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:\n")[2]
    listed = re.findall(r"- .*: (\S+\.md)$", nav, re.MULTILINE)
    docs = ROOT / "docs"
    pages = [page.relative_to(docs).as_posix() for page in docs.glob("**/*.md")]
    assert sorted(listed) == sorted([*pages, "CHANGELOG.md", "CONTRIBUTING.md"])


@pytest.mark.real
def test_the_site_is_built_and_asks_no_other_host_for_anything(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)]
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")
    loaded = re.compile(
        r"<(?:script|img|iframe)[^>]+src=\"?https?:|<link[^>]+rel=\"?(?:stylesheet|preconnect)[^>]+https?:"
    )
    pages = sorted(tmp_path.glob("**/*.html"))
    assert len(pages) > 30
    assert [page.name for page in pages if loaded.search(page.read_text(encoding="utf-8"))] == []


@pytest.mark.parametrize("name", sorted(ENVIRONMENTS))
def test_every_component_and_metric_is_explained(name: str) -> None:
    entry = ENVIRONMENTS[name]
    spec = entry.build(entry.members_of(entry.config_class(), "validation")[0], 1).spec
    pages = ("environments.md", "federated-rounds.md")
    text = "".join((ROOT / "docs" / page).read_text(encoding="utf-8") for page in pages)
    missing = [word for word in (*spec.components, *spec.metrics) if f"`{word}`" not in text]
    assert missing == []


def test_every_claim_of_the_threat_model_names_a_test_that_exists() -> None:
    page = (ROOT / "docs" / "security.md").read_text()
    named = re.findall(r"`([\w/]+\.py)(?:::(\w+))?`", page)
    assert len(named) > 30
    for file, test in named:
        source = (ROOT / "tests" / "deploy" / file).read_text()
        assert f"def {test}(" in source if test else "def test_" in source, f"{file}::{test}"
