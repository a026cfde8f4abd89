"""The wheel: built from what the repository holds, installed where nothing else of it is."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PIP = ("-m", "pip", "--disable-pip-version-check", "-q")
TINY = (
    *("+env=spot", "env.rules=adrs_single", "env.work_h=2", "env.deadline_h=4", "device=cpu", "out=run"),
    *("trainer.episodes=6", "trainer.validation_episodes=2", "trainer.test_episodes=2"),
)
LIBRARY = """
import spotweave.envs
print(spotweave.envs.__file__)
policy = spotweave.load("liu2022/rl_lsfc")
observation, _ = spotweave.make("multicluster").reset(seed=1)
print(policy.explain(observation)[0].taken)
"""


def run(*words: str | Path, folder: Path) -> str:
    """What a command prints, without what this Python finds by its environment. Fails with its last lines."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    environment = {**kept, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [*map(str, words)], cwd=folder, env=environment, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
    return done.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The `bin` of a fresh environment with the wheel; the libraries that it needs are those of this one."""
    folder = tmp_path_factory.mktemp("wheel")
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    # The container's image is built of these.
    context = [line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line[0] == "!"]
    for name in listed.stdout.splitlines():
        if name.partition("/")[0] in context and (ROOT / name).exists():
            (folder / "source" / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / "source" / name, follow_symlinks=False)
    build = (*PIP, "wheel", "--no-deps", "--no-build-isolation", "-w", folder, ".")
    run(sys.executable, *build, folder=folder / "source")
    run(sys.executable, "-m", "venv", folder / "venv", folder=folder)
    python = folder / "venv" / "bin" / "python"
    run(python, *PIP, "install", "--no-deps", next(folder.glob("*.whl")), folder=folder)
    site = run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", folder=folder).strip()
    # A path file: this environment's own path files, of which one leads to the repository, are not read.
    (Path(site) / "libraries.pth").write_text(sysconfig.get_path("purelib"))
    return python.parent


@pytest.mark.real
def test_commands_and_library_work_from_an_installed_wheel(installed: Path, tmp_path: Path) -> None:
    command = installed / "spotweave"
    assert run(command, "--version", folder=tmp_path).split()
    assert "uniform_progress" in run(command, "policies", folder=tmp_path)
    trained = run(command, "train", *TINY, folder=tmp_path)
    assert "report: run/test/report.html" in trained
    assert '"commit": "unknown"' in (tmp_path / "run" / "provenance.json").read_text()
    compared = (
        "policies=[spot_values,on_demand]",
        "checkpoint=spot/single",
        "env.rules=adrs_single",
        "episodes=2",
    )
    assert "spot_values is" in run(command, "compare", "+env=spot", *compared, folder=tmp_path)
    place, explained = run(installed / "python", "-c", LIBRARY, folder=tmp_path).splitlines()
    assert Path(place).is_relative_to(installed.parent)
    assert Path(place).parts[-3:] == ("spotweave", "envs", "__init__.py")
    assert explained == "True"
