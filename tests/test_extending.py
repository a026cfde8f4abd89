"""Agents of other packages: the one of examples/package, and entry points that cannot be used."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from agents import registry
from spotweave.plugins import PluginError, plugins
from tests.training.commands import TINY_TRAINER, TINY_WORLD, Command
from training.config import register_schemas

AGENT = Path(__file__).resolve().parents[1] / "examples" / "package" / "my_package" / "pair_only.py"


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of installed packages."""
    site = tmp_path / "site"
    site.mkdir()
    monkeypatch.syspath_prepend(site)
    for cached in (registry.agents, register_schemas):
        cached.cache_clear()
    yield site
    for cached in (registry.agents, register_schemas):
        cached.cache_clear()


def install(site: Path, module: str, source: str, points: str) -> None:
    (site / f"{module}.py").write_text(source)
    about = site / f"{module}-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(points)


@pytest.mark.real
def test_an_agent_trains_and_is_loaded_by_its_name(
    package: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    points = "[spotweave.agents]\npair_only = pair_only:AGENT\n"
    install(package, "pair_only", AGENT.read_text("utf-8"), points)
    monkeypatch.chdir(tmp_path)
    words = ("agent=pair_only", "agent.hidden_size=5", *TINY_TRAINER, "trainer.test_episodes=2", "out=run")
    command = Command(monkeypatch, capsys)
    outcome = command("+env=multicluster", *TINY_WORLD["multicluster"], *words, "device=cpu")
    assert outcome.code == 0, outcome.err
    assert "pair_only" in outcome.out  # the table at the end, of the checkpoint loaded again
    assert (
        "unknown key agent.hiden_size"
        in command("+env=multicluster", "agent=pair_only", "agent.hiden_size=5").mistake
    )


@pytest.mark.parametrize(
    ("points", "message"),
    [
        ("rl_fc = mine:THING", "the name is taken"),
        ("mine = nowhere:THING", "cannot be loaded: ModuleNotFoundError"),
        ("mine = mine:THING", "is of type int: expected Agent"),
    ],
)
def test_an_entry_point_that_cannot_be_used_is_one_line(package: Path, points: str, message: str) -> None:
    install(package, "mine", "THING = 3\n", f"[spotweave.agents]\n{points}\n")
    with pytest.raises(PluginError, match=message) as caught:
        plugins(registry.GROUP, registry.Agent, registry.OURS)
    assert "\n" not in str(caught.value)
