"""What a job's code reaches, in every sandbox that this machine can make: attacks with real processes."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from spotweave.deploy.node import procfs
from spotweave.deploy.runners.detached import Detached
from spotweave.deploy.security import sandbox as module
from spotweave.deploy.security import trial
from spotweave.deploy.security.sandbox import Box, Mode, Sandbox, SandboxError
from spotweave.deploy.security.trial import choose
from tests.deploy.node.agents import wait_until
from tests.deploy.runners.patience import SLIPS_AWAY, insist

pytestmark = pytest.mark.real

NUMBERS = (61184, 65519)
ROOT = os.geteuid() == 0
PYTHON = {Mode.BUBBLEWRAP: sys.executable, Mode.UID: "/usr/bin/python3"}
"""Of which other users may read all: ours may lie in somebody's home."""

ATTACK = """
import json, os, signal, socket, subprocess, sys
targets = json.loads(sys.argv[1])
got = []
def attempt(name, act):
    try:
        act()
        got.append(name)
    except (OSError, IndexError, subprocess.CalledProcessError):
        pass
def write(path):
    with open(path, "a") as file:
        file.write("x")
for name, path in targets["read"].items():
    attempt("read " + name, lambda: open(path, "rb").read())
for name, path in targets["write"].items():
    attempt("write " + name, lambda: write(path))
def names():
    if "other" not in os.listdir(targets["state"] + "/jobs"):
        raise OSError
attempt("see which jobs there are", names)
attempt("become root", lambda: os.setuid(0))
attempt("any environ of another", lambda: [
    None for pid in os.listdir("/proc") if pid.isdigit() and pid != str(os.getpid())
    and targets["secret"].encode() in open(f"/proc/{pid}/environ", "rb").read()][0])
for pid in targets["pids"]:
    attempt(f"signal {pid}", lambda: open(f"/proc/{pid}/environ", "rb").read() and os.kill(pid, 0))
mount = ["mount", "-t", "tmpfs", "x", "/mnt"]
attempt("mount", lambda: subprocess.run(mount, check=True, capture_output=True))
with open("own-file", "w") as file:
    file.write("mine")
open(os.environ.get("TMPDIR", "/tmp") + "/scratch", "w").close()
with open("got.json", "w") as file:
    json.dump(got, file)
"""


class World:
    """A deployment's state with secrets in it, two jobs, and a sandbox."""

    def __init__(self, folder: Path, mode: Mode) -> None:
        self.state = folder / "state"
        self.secret = secrets.token_hex()
        for job in ("mine", "other"):
            (self.state / "jobs" / job).mkdir(parents=True, mode=0o700)
            (self.state / "jobs" / job / "given").write_text(self.secret)
        self.state.chmod(0o700)
        for name in ("store.db", "store.db.key"):
            (self.state / name).write_text(self.secret)
            (self.state / name).chmod(0o600)
        self.python = PYTHON[mode]
        self.sandbox = choose(mode, trust=False, state=self.state, numbers=NUMBERS, python=self.python)

    @property
    def mine(self) -> Path:
        """The folder of the job that attacks."""
        return self.state / "jobs" / "mine"

    def run(
        self, code: str, *arguments: str, job: str = "mine", env: dict[str, str] | None = None
    ) -> Detached:
        """Start code of a job; its current folder is the job's."""
        workdir, runner = self.state / "jobs" / job, self.state / "runner" / job
        process = Detached(runner / "process")
        box = Box(job, job, (workdir,), runner / "tmp")
        argv = [self.python, "-c", code, *arguments]
        given = env or {"PATH": os.environ["PATH"], "OWN": "its own"}
        process.start(argv, given, workdir, runner / "log", boxed=(self.sandbox, box))
        return process

    def succeeds(self, code: str, *arguments: str, env: dict[str, str] | None = None) -> None:
        process = self.run(code, *arguments, env=env)
        wait_until(lambda: process.result() is not None)
        result = process.result()
        assert result is not None
        log = (self.state / "runner" / "mine" / "log").read_text()
        assert (result.exit_code, result.error) == (0, ""), log


@pytest.fixture(params=[Mode.BUBBLEWRAP, Mode.UID])
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    mode: Mode = request.param
    try:
        trial._require(mode, ROOT)
    except SandboxError as error:
        pytest.skip(str(error))
    # Not below pytest's own folder, which is closed to all other users.
    with tempfile.TemporaryDirectory(dir="/var/tmp") as name:
        Path(name).chmod(0o711)
        yield World(Path(name).resolve(), mode)


def test_a_job_reaches_its_own_files_and_no_secret(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    other = world.run(f"import time; {world.secret!r}; time.sleep(600)", job="other")
    try:
        monkeypatch.setenv("SCHEDULER_SECRET", world.secret)
        bystander = subprocess.Popen(["sleep", "600"])
        targets = {
            "secret": world.secret,
            "state": str(world.state),
            "read": {
                "key": str(world.state / "store.db.key"),
                "store": str(world.state / "store.db"),
                "another job's file": str(world.state / "jobs" / "other" / "given"),
                "another job's command": str(world.state / "runner" / "other" / "process" / "command.json"),
                "its own command": str(world.state / "runner" / "mine" / "process" / "command.json"),
                "passwords": "/etc/shadow",
            },
            "write": {
                "store": str(world.state / "store.db"),
                "another job's folder": str(world.state / "jobs" / "other" / "x"),
                "the code of the service": str(Path(module.__file__)),
                "programs": "/usr/local/bin/x",
            },
            "pids": [os.getpid(), bystander.pid],
        }
        try:
            world.succeeds(ATTACK, json.dumps(targets))
        finally:
            bystander.kill()
            bystander.wait()
        assert json.loads((world.mine / "got.json").read_text()) == []
        assert (world.mine / "own-file").read_text() == "mine"
    finally:
        insist(lambda: other.end(grace_s=0))


def test_nothing_of_it_hides_from_its_end(world: World) -> None:
    process = world.run(SLIPS_AWAY + "time.sleep(600)")
    alive = world.mine / "alive"
    wait_until(alive.exists)
    # Not even if its launcher was killed, so that it is nobody's child.
    pid = json.loads((process.folder / "process.json").read_bytes())["pid"]
    os.kill(pid, 9)
    wait_until(lambda: not process.running())
    insist(lambda: process.end(grace_s=0))
    alive.unlink()
    time.sleep(0.5)
    assert not alive.exists()


def test_a_fork_bomb_ends(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_PROCESSES_MOST", 200)
    bomb = "import os, time\nopen('up', 'w').close()\nwhile True:\n"
    bomb += "    try:\n        os.fork()\n    except OSError:\n        time.sleep(0.01)"
    process = world.run(bomb)
    wait_until((world.mine / "up").exists)
    time.sleep(0.3)
    insist(lambda: process.end(grace_s=0))
    assert not process.running()
    assert process._mine(list(procfs.scan())) == []


@pytest.mark.skipif(not ROOT, reason="only root can be another user")
def test_files_are_the_schedulers_again_when_the_job_is_forgotten(world: World) -> None:
    world.succeeds("open('result', 'w').write('x'); import os; os.symlink('/etc/passwd', 'link')")
    assert world.mine.stat().st_uid in range(NUMBERS[0], NUMBERS[1] + 1)
    world.sandbox.over("mine")
    world.sandbox.forget("mine")
    assert {path.lstat().st_uid for path in (world.mine, *world.mine.iterdir())} == {0}
    assert Path("/etc/passwd").stat().st_uid == 0
    assert json.loads((world.state / "sandbox" / "ids.json").read_text())["lent"] == {}


def test_variables_of_a_job_reach_no_program_outside_of_its_sandbox(world: World) -> None:
    outside = world.state / "outside"
    outside.mkdir(mode=0o700)
    for name in ("bwrap", "setpriv", "prlimit", "systemd-run", "python3", "env"):
        fake = world.mine / name
        fake.write_text(f"#!/bin/sh\n: > {outside}/{name}\n")
        fake.chmod(0o755)
    # The dynamic linker of a process outside would obey these as it obeys LD_PRELOAD, and leave a trace.
    given = {"PATH": ".", "LD_DEBUG": "libs", "LD_DEBUG_OUTPUT": f"{outside}/linker", "SECRET": "x" * 100_000}
    code = "import json, os, sys; json.dump([dict(os.environ), sys.stdin.read()], open('seen.json', 'w'))"
    world.succeeds(code, env=given)
    assert list(outside.iterdir()) == []
    env, stdin = json.loads((world.mine / "seen.json").read_text())
    assert given.items() <= env.items()
    assert stdin == ""


def test_programs_that_lie_below_tmp_are_there(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A virtual environment may lie there, of which bubblewrap gives each command a folder of its own."""
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        Path(name).chmod(0o755)
        library = Path(name) / "library.py"
        library.write_text("x = 1")
        code = module._code() | {Path(name)}
        monkeypatch.setattr(module, "_code", lambda: code)
        world.succeeds(f"assert open({str(library)!r}).read() == 'x = 1'")


def test_a_link_in_place_of_a_folder_is_refused_with_its_reason(world: World) -> None:
    own = world.mine / "own"
    own.symlink_to(world.state)
    box = Box("mine", "mine", (own,), world.state / "tmp")
    process = Detached(world.state / "process")
    process.start(["true"], {}, world.state, world.state / "log", boxed=(world.sandbox, box))
    result = process.result()
    assert result is not None
    assert result.of_job
    assert "leads through a link" in result.error


def test_without_a_sandbox_the_trial_finds_everything(tmp_path: Path) -> None:
    assert len(trial.trial(Sandbox(Mode.NONE, tmp_path))) == 3


def chosen(mode: Mode, state: Path, trust: bool = False) -> Mode:
    return choose(mode, trust=trust, state=state, numbers=NUMBERS).mode


def test_nothing_is_trusted_unless_it_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SandboxError, match="a submitter of this deployment would be its operator"):
        chosen(Mode.NONE, tmp_path)
    assert chosen(Mode.NONE, tmp_path, trust=True) is Mode.NONE
    monkeypatch.setattr(shutil, "which", lambda name, path: None)
    with pytest.raises(SandboxError, match=r"there is no bwrap.*install bubblewrap.*trust_submitters: true"):
        chosen(Mode.AUTO, tmp_path)
    assert chosen(Mode.AUTO, tmp_path, trust=True) is Mode.NONE
    with pytest.raises(SandboxError, match="there is no bwrap"):
        chosen(Mode.BUBBLEWRAP, tmp_path, trust=True)


@pytest.mark.skipif(Path("/run/systemd/system").is_dir(), reason="it runs here")
def test_systemd_is_refused_where_it_does_not_run(tmp_path: Path) -> None:
    with pytest.raises(SandboxError, match="sandbox systemd: "):
        chosen(Mode.SYSTEMD, tmp_path)


@pytest.mark.skipif(not ROOT, reason="files are handed to another user")
def test_a_unit_of_systemd_hides_the_state_and_the_metadata_service(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "program", lambda name: f"/usr/bin/{name}")
    state = tmp_path.resolve() / "state"
    own = state / "own"
    state.mkdir()
    made = Sandbox(Mode.SYSTEMD, state, numbers=NUMBERS)
    boxed = made.wrap(["/bin/true"], {"TOKEN": "never in argv"}, own, Box("a", "b", (own,), state / "tmp"))
    words = boxed.argv
    assert words[0] == "/usr/bin/systemd-run"
    assert words[-1] == "/bin/true"
    uid = own.stat().st_uid
    for expected in (
        f"User={uid}",
        f"SupplementaryGroups={boxed.group}",
        "IPAddressDeny=169.254.169.254",
        "ProtectSystem=strict",
        "NoNewPrivileges=yes",
        f"TemporaryFileSystem={state}:ro",
        f"BindPaths={own}",
    ):
        assert f"--property={expected}" in words
    assert "TOKEN" not in boxed.env
    assert not any("never in argv" in word for word in words)
    assert boxed.given is not None
    assert "never in argv" in boxed.given
    assert words.index(f"--property=TemporaryFileSystem={state}:ro") < words.index(
        f"--property=BindPaths={own}"
    )
