"""The demo, as `make demo` runs it: real jobs, recorded interruptions, a report, nothing left behind."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
import yaml

from deploy import demo
from deploy.demo import JOBS, DemoConfig, paced
from deploy.jobfile import read_job
from deploy.providers.local.config import LocalConfig
from spotweave.mistakes import EXIT_USER

ROOT = Path(__file__).resolve().parents[2]
CONFIGS = ROOT / "configs" / "deploy"


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """The demo's deployment with a state folder of its own, on a port that is free."""
    content = yaml.safe_load((CONFIGS / "demo.yaml").read_text(encoding="utf-8"))
    content["state"] = str(tmp_path / "state")
    content["http"]["port"] = 0
    content["providers"]["local"] = str(CONFIGS / content["providers"]["local"])
    path = tmp_path / "demo.yaml"
    path.write_text(yaml.safe_dump(content), encoding="utf-8")
    return path


def processes_of(folder: Path) -> list[str]:
    """Command lines of processes whose command line or current folder lies in a folder."""
    found = []
    for process in psutil.process_iter():
        try:
            words = " ".join(process.cmdline())
            if str(folder) in words or process.cwd().startswith(str(folder)):
                found.append(words)
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return found


def run_demo(config: Path, *words: str, timeout_s: float) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "deploy.demo", "--config", str(config), *words]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=timeout_s, check=False)


def test_on_a_slow_machine_clock_and_deadlines_are_as_much_longer(config: Path) -> None:
    usual = DemoConfig.load(config)
    slow = usual.model_copy(update={"pace": 2.5})
    (before,), (after,) = usual.rented().values(), slow.rented().values()
    assert isinstance(before, LocalConfig)
    assert isinstance(after, LocalConfig)
    assert (before.time_factor, after.time_factor) == (120.0, 48.0)
    assert (before.offers[0].notice_s, after.offers[0].notice_s) == (12.0, 30.0)
    changed = {}
    for file in JOBS:
        spec = read_job(file)
        work, longer = spec.work.model_dump(), paced(spec, 2.5).work.model_dump()
        changed[spec.name] = {name: longer[name] / work[name] for name in work if longer[name] != work[name]}
    assert changed == {
        "wordcount": {"standard_s": 2.5, "deadline_s": 2.5},
        "pi": {"standard_s": 2.5, "deadline_s": 2.5},
        "streaming": {"period_s": 2.5, "batch_deadline_s": 2.5},
        "federated-mnist": {"epoch_s": 2.5},
    }


def test_a_machine_on_which_it_would_fail_is_told_so_before_anything_starts(
    config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(demo, "slowness", lambda: 9.0)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    assert demo.main(["--config", str(config)]) == EXIT_USER
    assert "this machine is 9 times as slow as two idle cores" in capsys.readouterr().err
    assert not (tmp_path / "state").exists()


@pytest.mark.real
@pytest.mark.nightly
def test_every_job_ends_well_and_nothing_is_left(config: Path, tmp_path: Path) -> None:
    state = tmp_path / "state"
    # On a machine that others use too it may take longer than the promised ten minutes.
    ended = run_demo(config, "--within", "1500", timeout_s=1800)
    assert ended.returncode == 0, ended.stdout[-3000:] + ended.stderr[-3000:]
    report = ended.stdout.splitlines()
    for job in ("wordcount-", "pi-", "streaming-", "federated-mnist-"):
        row = [line for line in report if line.startswith(job)]
        assert len(row) == 1, report
        assert " succeeded " in row[0]
    assert "USD for the same instances on demand." in report[-1]
    # Every zone of the recording fails within four minutes: something was rented there.
    assert any("instance.noticed" in line for line in report), report
    assert processes_of(state) == []


@pytest.mark.real
def test_mistakes_are_one_line_and_delete_nothing(config: Path, tmp_path: Path) -> None:
    def refused(*words: str) -> str:
        ended = run_demo(config, *words, timeout_s=300)
        assert ended.returncode == 2
        assert ended.stderr.startswith("error: ")
        assert ended.stderr.count("\n") == 1
        return ended.stderr

    assert "no-such-job.yaml" in refused("no-such-job.yaml")
    (tmp_path / "state").mkdir(exist_ok=True)
    (tmp_path / "state" / "store.db").write_bytes(b"books")
    assert "is not a demo's" in refused("--within", "900")
    assert (tmp_path / "state" / "store.db").read_bytes() == b"books"
