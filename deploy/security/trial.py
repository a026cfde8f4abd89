"""Which sandbox works on this machine, and what a job's code could reach in it all the same: by trying."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from spotweave.deploy.node import procfs
from spotweave.deploy.security.sandbox import (
    METADATA_ADDRESS,
    Box,
    IdentitiesError,
    Mode,
    Sandbox,
    SandboxError,
    program,
)

_TRIAL_S = 30.0
_INSTALL = "install bubblewrap (Debian: apt install bubblewrap)"


def choose(
    wanted: Mode,
    *,
    trust: bool,
    state: Path,
    hidden: Sequence[Path] = (),
    readable: Sequence[Path] = (),
    numbers: tuple[int, int],
    python: str = sys.executable,
) -> Sandbox:
    """The sandbox of a deployment, tried out: of the mode that is wanted, and else as of `Sandbox`.

    `trust`: submitters have all rights of the operator anyway. Homes and what runs on this machine are hidden
    too. Raises SandboxError (one line) if jobs could not be kept apart.
    """
    root = os.geteuid() == 0
    homes = (Path.home(), Path("/root"), Path("/home"), Path("/run"))
    # A file of the operator's directly in /etc must not hide all of it.
    deep = (path.resolve() for path in hidden if len(path.resolve().parts) > 2)
    folders = tuple(dict.fromkeys((*deep, *(path.resolve() for path in homes))))

    def made(mode: Mode) -> Sandbox:
        return Sandbox(mode, state.resolve(), folders, tuple(readable), numbers if root else None, python)

    if wanted is Mode.NONE:
        if not trust:
            raise SandboxError(
                "runners.sandbox is none: a submitter of this deployment would be its operator; choose "
                "another, or set runners.trust_submitters: true"
            )
        return made(Mode.NONE)
    problems = []
    for mode in (Mode.BUBBLEWRAP, Mode.UID) if wanted is Mode.AUTO else (wanted,):
        try:
            _require(mode, root)
            found = made(mode)
            trial(found)
            if mode is Mode.UID:
                _require_way(found.state)
            return found
        except SandboxError as error:
            problems.append(str(error))
    if wanted is Mode.AUTO and trust:
        return made(Mode.NONE)
    raise SandboxError(
        "a submitter of this deployment would be its operator: jobs cannot be kept apart "
        f"({'; '.join(problems)}); {_INSTALL}, or set runners.trust_submitters: true"
    )


def _require(mode: Mode, root: bool) -> None:
    programs = {
        Mode.UID: ("setpriv", "prlimit"),
        Mode.BUBBLEWRAP: ("bwrap", "setpriv", "prlimit"),
        Mode.SYSTEMD: ("systemd-run",),
    }
    for name in programs[mode]:
        try:
            program(name)
        except SandboxError as error:
            raise SandboxError(f"sandbox {mode}: {error}") from error
    if mode is not Mode.BUBBLEWRAP and not root:
        raise SandboxError(f"sandbox {mode}: serve does not run as root")
    if mode is Mode.SYSTEMD and not Path("/run/systemd/system").is_dir():
        raise SandboxError("sandbox systemd: systemd does not run on this machine")


def _require_way(state: Path) -> None:
    """Refuse a state folder that no other user can reach. Raises SandboxError."""
    for parent in state.parents:
        if parent.exists() and not parent.stat().st_mode & 0o001:
            raise SandboxError(
                f"sandbox uid: jobs cannot reach {state}, because {parent} is closed to other users: "
                "set another folder as state"
            )


def trial(sandbox: Sandbox, metadata: bool = False) -> list[str]:
    """Start something in a sandbox, and let it try what it must not be able to do.

    With `metadata` it asks for the cloud's metadata service too (a second or two). Returns what does not
    hold, one line each. Raises SandboxError if nothing can be started in it.
    """
    with tempfile.TemporaryDirectory(prefix="spotweave-", dir="/var/tmp") as name:
        folder = Path(name).resolve()
        folder.chmod(0o711)
        like = replace(sandbox, state=folder)
        own, secret = folder / "own", folder / "secret"
        secret.write_text("secret")
        secret.chmod(0o600)
        box = Box("trial", "trial", (own,), folder / "tmp")
        me = procfs.read(os.getpid())
        assert me is not None
        given = (secret, me.pid, me.start_ticks, own, METADATA_ADDRESS if metadata else "")
        words = [sandbox.python, "-I", "-S", "-c", _TRIAL, *map(str, given)]
        env = {"PATH": os.environ.get("PATH", os.defpath)}
        try:
            boxed = like.wrap(words, env, own, box)
            with open(boxed.stdin()) as stdin:
                done = subprocess.run(
                    boxed.argv,
                    env=boxed.env,
                    stdin=stdin,
                    capture_output=True,
                    text=True,
                    timeout=_TRIAL_S,
                    cwd="/",
                )
        except (OSError, IdentitiesError, subprocess.TimeoutExpired) as error:
            raise SandboxError(f"sandbox {sandbox.mode}: {error}") from error
        if done.returncode != 0:
            said = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
            raise SandboxError(f"sandbox {sandbox.mode}: {said}")
    able = json.loads(done.stdout)
    return [line for what, line in _BROKEN.items() if able[what]]


_BROKEN = {
    "secret": "a job's code can read the deployment's files",
    "environ": "a job's code can read the scheduler's environment",
    "signal": "a job's code can end the scheduler",
    "metadata": f"a job's code reaches the cloud's metadata service ({METADATA_ADDRESS}), and with it the "
    "rights of this machine's role: give the machine none, or let a firewall reject it for jobs",
}
_TRIAL = """
import json, os, signal, socket, sys
secret, pid, ticks, own, metadata = sys.argv[1:]
def can(act):
    try:
        act()
    except OSError:
        return False
    return True
def seen():
    # In a namespace of its own, another process may have that number.
    with open(f"/proc/{pid}/stat") as stat:
        if stat.read().rpartition(")")[2].split()[19] != ticks:
            raise OSError
open(own + "/written", "w").close()
scheduler = can(seen)
print(json.dumps({
    "secret": can(lambda: open(secret).read()),
    "environ": scheduler and can(lambda: open(f"/proc/{pid}/environ", "rb").read()),
    "signal": scheduler and can(lambda: os.kill(int(pid), 0)),
    "metadata": bool(metadata) and can(lambda: socket.create_connection((metadata, 80), 1.5).close()),
}))
"""
