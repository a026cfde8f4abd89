"""The package of examples/package, when it is installed, does what docs/extending.md says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

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
    (folder / "my_package" / "__init__.py").touch()
    metadata = folder / f"{project['name']}-{project['version']}.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Name: {project['name']}\nVersion: {project['version']}\n")
    groups = (
        f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in points.items())
        for group, points in project["entry-points"].items()
    )
    (metadata / "entry_points.txt").write_text("\n".join(groups))


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
            "import agents.rules",
            "'maf2' of spotweave.rules (nothing.here) cannot be loaded",
        ),
        ("spotweave.environments", "multicloud = 'os:path'", "import envs.environments", "the name is taken"),
        (
            "spotweave.traces",
            "csv = 'os:path'",
            "from envs.traces.importers import market_importers as m; m()",
            "the name is taken",
        ),
    ],
)
def test_a_bad_entry_point_is_named(group: str, point: str, command: str, told: str, tmp_path: Path) -> None:
    project = f'[project]\nname = "bad"\nversion = "1"\n[project.entry-points."{group}"]\n{point}\n'
    install({"pyproject.toml": project, "my_package/x.py": ""}, tmp_path)
    done = run(f'python -c "{command}"', tmp_path, tmp_path)
    assert done.returncode != 0
    assert told in done.stderr.splitlines()[-1]
