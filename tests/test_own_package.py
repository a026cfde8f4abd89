"""The package of examples/package does what docs/extending.md says; what cannot be used is one line."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from spotweave.agents import registry
from spotweave.plugins import PluginError, plugins
from spotweave.training.config import register_schemas
from tests.training.commands import TINY_TRAINER, TINY_WORLD, Command

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")
PACKAGE = ROOT / "examples" / "package"
FILES = {
    name: (PACKAGE / name).read_text(encoding="utf-8")
    for name in ("pyproject.toml", *(f"my_package/{path.name}" for path in PACKAGE.glob("my_package/*.py")))
}
USES = re.findall(r"^## ([^\n]+)$|<!-- use -->\n```bash\n(.*?)```", PAGE, re.DOTALL | re.MULTILINE)


def uses() -> dict[str, str]:
    """The commands of each section, by its heading."""
    found, heading = {}, ""
    for title, commands in USES:
        heading = title or heading
        if commands:
            found[heading] = commands
    return found


def install(files: dict[str, str], folder: Path) -> None:
    """The files as an installed package: with the entry points of its pyproject.toml."""
    project = tomllib.loads(files["pyproject.toml"])["project"]
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    metadata = folder / f"{project['name']}-{project['version']}.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Name: {project['name']}\nVersion: {project['version']}\n")
    groups = (
        f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in points.items())
        for group, points in project["entry-points"].items()
    )
    (metadata / "entry_points.txt").write_text("\n".join(groups))


def naming(group: str, point: str) -> str:
    """The pyproject.toml of a package with one entry point."""
    return f'[project]\nname = "mine"\nversion = "1"\n[project.entry-points."{group}"]\n{point}\n'


def run(commands: str, package: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run commands with the package installed and this Python's commands first."""
    scripts = Path(sys.executable).parent
    environment = {
        **os.environ,
        "PATH": f"{scripts}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": f"{package}{os.pathsep}{ROOT}",
        "OMP_NUM_THREADS": "1",
    }
    return subprocess.run(
        ["bash", "-eo", "pipefail", "-c", commands],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=600,
    )


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("installed")
    install(FILES, folder)
    return folder


@pytest.mark.real
@pytest.mark.parametrize("heading", uses())
def test_the_example_runs_as_the_page_says(heading: str, package: Path, tmp_path: Path) -> None:
    done = run(uses()[heading], package, tmp_path)
    assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-2000:]}"


def test_every_section_has_an_example() -> None:
    assert {"A rule", "An environment", "A trace importer"} == set(uses())


@pytest.mark.real
@pytest.mark.parametrize(
    ("group", "point", "command", "told"),
    [
        (
            "spotweave.rules",
            "maf2 = 'nothing.here'",
            "import spotweave.agents.rules",
            "'maf2' of spotweave.rules (nothing.here) cannot be loaded",
        ),
        (
            "spotweave.environments",
            "multicloud = 'os:path'",
            "import spotweave.envs.environments",
            "the name is taken",
        ),
        (
            "spotweave.traces",
            "csv = 'os:path'",
            "from spotweave.envs.traces.importers import market_importers as m; m()",
            "the name is taken",
        ),
    ],
)
def test_a_bad_entry_point_is_named(group: str, point: str, command: str, told: str, tmp_path: Path) -> None:
    install({"pyproject.toml": naming(group, point)}, tmp_path)
    done = run(f'python -c "{command}"', tmp_path, tmp_path)
    assert done.returncode != 0
    assert told in done.stderr.splitlines()[-1]


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of packages that this process finds, too."""
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(folder)
    for cached in (registry.agents, register_schemas):
        cached.cache_clear()
    yield folder
    for cached in (registry.agents, register_schemas):
        cached.cache_clear()


@pytest.mark.real
def test_an_agent_trains_and_is_loaded_by_its_name(
    site: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    project = naming("spotweave.agents", "pair_only = 'pair_only:AGENT'")
    install({"pyproject.toml": project, "pair_only.py": FILES["my_package/pair_only.py"]}, site)
    monkeypatch.chdir(tmp_path)
    words = ("agent=pair_only", "agent.hidden_size=5", *TINY_TRAINER, "trainer.test_episodes=2", "out=run")
    command = Command(monkeypatch, capsys)
    outcome = command("+env=multicluster", *TINY_WORLD["multicluster"], *words, "device=cpu")
    assert outcome.code == 0, outcome.err
    assert "pair_only" in outcome.out  # the table at the end, of the checkpoint loaded again
    mistyped = command("+env=multicluster", "agent=pair_only", "agent.hiden_size=5")
    assert "unknown key agent.hiden_size" in mistyped.mistake


@pytest.mark.parametrize(
    ("point", "message"),
    [
        ("rl_fc = 'mine:THING'", "the name is taken"),
        ("mine = 'nowhere:THING'", "cannot be loaded: ModuleNotFoundError"),
        ("mine = 'mine:THING'", "is of type int: expected Agent"),
    ],
)
def test_an_agent_that_cannot_be_used_is_one_line(site: Path, point: str, message: str) -> None:
    install({"pyproject.toml": naming("spotweave.agents", point), "mine.py": "THING = 3\n"}, site)
    with pytest.raises(PluginError, match=message) as caught:
        plugins(registry.GROUP, registry.Agent, registry.OURS)
    assert "\n" not in str(caught.value)
