"""Many runs at a time: what is started, what a failure does to the others, and what Ctrl-C does."""

from __future__ import annotations

import fcntl
import os
import signal
from collections.abc import Mapping
from pathlib import Path

import pytest

from spotweave.mistakes import EXIT_INTERRUPTED
from spotweave.training.checkpoint import RunDirectory
from spotweave.training.studies import processes
from spotweave.training.studies.processes import RepeatProgress, last_line, log_of, run_all, start_here
from spotweave.training.studies.trained import Run

SCRIPT = """
import os, signal, sys, time
from pathlib import Path
words = dict(word.split("=", 1) for word in sys.argv[1:])
run = Path(words.get("out") or words["resume"])
print("words", *sys.argv[1:], "threads", os.environ["OMP_NUM_THREADS"])
mode = (run / "mode").read_text()
if mode == "fails":
    print("error: no such thing", file=sys.stderr)
    sys.exit(2)
if mode == "meets":
    (run / "here").touch()
    for _ in range(2000):
        if len(list(run.parent.glob("*/here"))) == 2:
            break
        time.sleep(0.01)
if mode == "waits":
    caught = []
    signal.signal(signal.SIGINT, lambda *_: caught.append(1))
    print("ready")
    while not caught:
        time.sleep(0.01)
    time.sleep(0.2)
    print("caught", len(caught))
    sys.exit(130)
(run / "done.json").write_text("{}")
"""


@pytest.fixture(autouse=True)
def _fake_training(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    monkeypatch.setattr(processes, "TRAIN", script)
    monkeypatch.setattr(processes, "POLL_S", 0.01)


def make_run(tmp_path: Path, name: str, mode: str) -> Run:
    path = tmp_path / name
    path.mkdir()
    (path / "mode").write_text(mode)
    return Run(name, 0, RunDirectory(path), (f"out={path}",))


class Watcher(RepeatProgress):
    """Remembers what it was told; at the `interrupt`-th run that is ready, sends Ctrl-C to this process."""

    def __init__(self, interrupt: int = 0) -> None:
        self.interrupt = interrupt
        self.told: list[tuple[str, str]] = []
        self.at_work = self.most_at_work = 0

    def began(self, run: Run, resumed: bool) -> None:
        self.at_work += 1
        self.most_at_work = max(self.most_at_work, self.at_work)
        self.told.append((run.training, "resumed" if resumed else "began"))

    def ended(self, run: Run, problem: str | None, seconds: float) -> None:
        self.at_work -= 1
        self.told.append((run.training, problem or "finished"))

    def waited(self, logs: Mapping[Run, Path]) -> None:
        if self.interrupt and sum("ready" in log.read_text() for log in logs.values()) == self.interrupt:
            self.interrupt = 0
            os.kill(os.getpid(), signal.SIGINT)


def test_all_run_a_few_at_a_time_with_their_words(tmp_path: Path) -> None:
    # The first ends when the second is there, however slowly that starts.
    runs = [make_run(tmp_path, name, "meets" if name in "ab" else "works") for name in "abcde"]
    watcher = Watcher()
    outcomes = run_all(runs, 2, 1, watcher, start_here)
    assert {run.training for run in outcomes.finished} == set("abcde")
    assert not outcomes.failed
    assert not outcomes.interrupted
    assert watcher.most_at_work == 2
    assert [name for name, what in watcher.told if what == "began"] == list("abcde")
    assert log_of(runs[0]).read_text() == f"words out={tmp_path / 'a'} threads 1\n"


def test_one_that_has_begun_is_resumed(tmp_path: Path) -> None:
    run = make_run(tmp_path, "a", "works")
    run.directory.config.write_text("")
    run.directory.state.write_text("")
    watcher = Watcher()
    assert run_all([run], 1, 1, watcher, start_here).finished == [run]
    assert watcher.told[0] == ("a", "resumed")
    assert f"words resume={tmp_path / 'a'}" in log_of(run).read_text()


def test_a_failure_is_one_line_with_its_log_and_the_others_go_on(tmp_path: Path) -> None:
    bad, good = make_run(tmp_path, "bad", "fails"), make_run(tmp_path, "good", "works")
    outcomes = run_all([bad, good], 1, 1, Watcher(), start_here)
    assert outcomes.finished == [good]
    assert outcomes.failed == {
        bad: f"ended with exit code 2 (error: no such thing): see {tmp_path / 'bad' / 'training.log'}"
    }


def test_ctrl_c_reaches_every_process_once_and_nothing_new_begins(tmp_path: Path) -> None:
    runs = [make_run(tmp_path, name, "waits") for name in "abc"]
    before = signal.getsignal(signal.SIGINT)
    watcher = Watcher(interrupt=2)
    outcomes = run_all(runs, 2, 1, watcher, start_here)
    assert outcomes.interrupted
    assert not outcomes.finished
    assert not outcomes.failed
    assert [last_line(log_of(run)) for run in runs] == ["caught 1", "caught 1", ""]
    assert signal.getsignal(signal.SIGINT) is before


class InterruptedPoll:
    """A training elsewhere; Ctrl-C comes while it is polled."""

    returncode: int | None = None

    def __init__(self) -> None:
        self.inside = False
        self.signals = 0

    def poll(self) -> int | None:
        assert not self.inside
        self.inside = True
        if not self.signals:
            os.kill(os.getpid(), signal.SIGINT)
        self.inside = False
        self.returncode = EXIT_INTERRUPTED if self.signals else None
        return self.returncode

    def send_signal(self, signum: int, /) -> None:
        self.signals += 1


def test_ctrl_c_in_the_middle_of_a_poll_does_not_begin_another(tmp_path: Path) -> None:
    run = make_run(tmp_path, "a", "works")
    elsewhere = InterruptedPoll()
    outcomes = run_all([run], 1, 1, Watcher(), lambda *_: elsewhere)
    assert outcomes.interrupted
    assert elsewhere.signals == 1


def test_a_run_that_another_process_trains_is_left_alone(tmp_path: Path) -> None:
    run = make_run(tmp_path, "a", "works")
    with (tmp_path / "a" / ".lock").open("ab") as claim:
        fcntl.flock(claim, fcntl.LOCK_EX)
        outcomes = run_all([run], 1, 1, Watcher(), start_here)
    assert "is being trained by another process" in outcomes.failed[run]
    assert not log_of(run).exists()
    assert run_all([run], 1, 1, Watcher(), start_here).finished == [run]


def test_a_run_that_claims_success_without_an_end_has_failed(tmp_path: Path) -> None:
    run = make_run(tmp_path, "a", "works")
    elsewhere = Run("a", 0, RunDirectory(tmp_path / "other"), run.overrides)
    assert "ended with exit code 0" in run_all([elsewhere], 1, 1, Watcher(), start_here).failed[elsewhere]
