"""What a job's code may reach on this machine: the one place that decides it, for drivers, servers and nodes.

Every mode is a prefix of a command's argument list, made of programs that distributions ship. What that takes
away, and what it cannot, `deploy.security.trial` finds out by trying.

These programs run with the scheduler's rights until they have given them up. So they are named by absolute
paths and never see the job's environment: the dynamic linker would load a job's `LD_PRELOAD` into them. The
job's variables go through standard input to a few lines of Python that run inside, as the job's user.
"""

from __future__ import annotations

import fcntl
import json
import os
import random
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

import spotweave
from spotweave.deploy.node import procfs
from spotweave.deploy.security.untrusted import anonymous_file, give, remove_tree
from spotweave.files import write_private

# Numbers of users and groups that no account has, lent to jobs: one for each name until it is given back.


class IdentitiesError(Exception):
    """No number is free; one line."""


class Identities:
    """Safe to use from several threads and processes; what is lent survives a restart.

    The number that was given back longest ago is lent next. The folder is made with mode 0700.
    """

    def __init__(self, folder: Path, numbers: range) -> None:
        self._folder = folder
        self._file = folder / "ids.json"
        self._numbers = numbers

    def lend(self, name: str) -> int:
        """The number of a name, now and until `give_back`. Raises IdentitiesError, OSError."""
        with self._held() as (lent, latest):
            if name in lent:
                return lent[name]
            # Another deployment of this machine may lend from the same range.
            taken = set(lent.values()) | _borne()
            draw = random.SystemRandom().randrange(len(self._numbers))
            start = self._numbers.index(latest) + 1 if latest in self._numbers else draw
            for step in range(len(self._numbers)):
                number = self._numbers[(start + step) % len(self._numbers)]
                if number not in taken:
                    lent[name] = number
                    write_private(self._file, json.dumps({"lent": lent, "latest": number}))
                    return number
        raise IdentitiesError(
            f"all {len(self._numbers)} ids of runners.sandbox_ids are taken: give a wider range"
        )

    def give_back(self, name: str) -> None:
        """Free a number under which nothing runs and no file is left. Raises OSError."""
        with self._held() as (lent, latest):
            if lent.pop(name, None) is not None:
                write_private(self._file, json.dumps({"lent": lent, "latest": latest}))

    @contextmanager
    def _held(self) -> Iterator[tuple[dict[str, int], int]]:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle = os.open(self._folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            try:
                found: dict[str, Any] = json.loads(self._file.read_bytes())
            except FileNotFoundError:
                found = {"lent": {}, "latest": -1}
            yield found["lent"], found["latest"]
        finally:
            os.close(handle)


def _borne() -> set[int]:
    """Users and groups of everything that runs."""
    found: set[int] = set()
    for process in procfs.scan():
        found |= procfs.groups(process.pid)
        with suppress(OSError):
            found.add(os.stat(f"/proc/{process.pid}").st_uid)
    return found


METADATA_ADDRESS = "169.254.169.254"
_PROCESSES_MOST = 4096  # threads and processes of one user id; a Spark driver has some hundred
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/run/current-system/sw/bin"
"""Search path of the sandbox's own programs, whatever PATH says."""
_OWN = (Path("/tmp"), Path("/var/tmp"), Path("/dev/shm"))
"""Folders that bubblewrap makes private to each command."""
_ENTER = """
import json, os, sys
with open(0, "rb", closefd=False) as given:
    env = json.loads(given.read())
os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
try:
    os.execvpe(sys.argv[1], sys.argv[1:], env)
except OSError as error:
    print(f"cannot start {sys.argv[1]}: {error.strerror}", file=sys.stderr)
    sys.exit(127)
"""


class Mode(StrEnum):
    """Method of isolating jobs' code."""

    AUTO = "auto"  # bubblewrap, or else user ids, whichever works here
    UID = "uid"  # a user id of its own for each job. Needs root.
    BUBBLEWRAP = "bubblewrap"
    """Namespaces in which the deployment's files are not there; as root, a user id of its own too."""
    SYSTEMD = "systemd"  # transient units of systemd, with a user id for each job. Needs root.
    NONE = "none"  # nothing: whoever submits a job has all rights of the scheduler


class SandboxError(ValueError):
    """The sandbox cannot be made; one line that says what to do."""


@dataclass(frozen=True)
class Box:
    """Sandbox of one command."""

    name: str  # what is ended together; unique
    owner: str  # whose files these are: commands of one owner may be several, one after the other or at once
    writable: tuple[Path, ...]  # folders, without links on the way
    tmp: Path  # its own /tmp; emptied first
    devices: tuple[Path, ...] = ()  # device files beyond those of every process, such as a GPU's


@dataclass(frozen=True)
class Boxed:
    """A command that is ready to be started."""

    argv: list[str]  # with the sandbox around it
    # the whole environment to start `argv` with; nothing of the job where there is a sandbox
    env: dict[str, str]
    group: int | None  # a group that all of it, and nothing else, belongs to; None where there is none
    given: str | None = None  # what `argv` reads from standard input, the job's environment; None: nothing

    def stdin(self) -> int:
        """A file descriptor for its standard input, to be closed once it has started."""
        return os.open(os.devnull, os.O_RDONLY) if self.given is None else anonymous_file(self.given)


@dataclass(frozen=True)
class Sandbox:
    """A way to keep jobs apart from the deployment and from each other."""

    mode: Mode  # any but AUTO
    state: Path  # folder of the deployment, without links; what of it a command may see is in its box
    hidden: tuple[Path, ...] = ()  # other folders that no job may see
    readable: tuple[Path, ...] = ()  # what jobs may read although it is hidden
    numbers: tuple[int, int] | None = None  # first and last id to lend; None where serve is not root
    python: str = sys.executable  # an interpreter that jobs can reach

    @property
    def _ids(self) -> Identities | None:
        if self.numbers is None or self.mode is Mode.NONE:
            return None
        return Identities(self.state / "sandbox", range(self.numbers[0], self.numbers[1] + 1))

    @property
    def apart(self) -> bool:
        """Whether the sandbox isolates anything."""
        return self.mode is not Mode.NONE

    def job_folder(self, job_id: str) -> Path:
        """The files of a job."""
        return self.state / "jobs" / job_id

    def wrap(self, argv: Sequence[str], env: Mapping[str, str], cwd: Path, box: Box) -> Boxed:
        """Make a command's box. Nothing of an earlier command of this name may run any more.

        Raises SandboxError if the job has put something into its folders with which that is not safe;
        IdentitiesError if all ids are lent; OSError if files cannot be handed over.
        """
        remove_tree(box.tmp)
        for folder in (*box.writable, box.tmp):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if self.mode is Mode.NONE:
            return Boxed(list(argv), dict(env), None)
        for path in (*box.writable, box.tmp):
            # A link that an earlier attempt has left would take the place of what it leads to.
            if path.resolve() != path:
                raise SandboxError(f"{path} leads through a link to {path.resolve()}: remove the link")
        uid = group = None
        if (ids := self._ids) is not None:
            uid, group = ids.lend(f"job {box.owner}"), ids.lend(f"box {box.name}")
            self._hand_over(box, uid)
        if self.mode is Mode.BUBBLEWRAP:
            prefix = [*self._bubblewrap(cwd, box, uid), *_as(uid, group)]
        elif self.mode is Mode.SYSTEMD:
            prefix = self._systemd(cwd, box, uid, group)
        else:
            prefix, env = _as(uid, group), {**env, "TMPDIR": str(box.tmp)}
        inside = [self.python, "-I", "-S", "-c", _ENTER, *argv]
        return Boxed([*prefix, *inside], {"PATH": _PATH, "LANG": "C.UTF-8"}, group, json.dumps(dict(env)))

    def over(self, name: str) -> None:
        """Release a box in which nothing runs any more."""
        if (ids := self._ids) is not None:
            ids.give_back(f"box {name}")

    def forget(self, job_id: str) -> None:
        """Release an ended job: its files are the scheduler's again. Raises OSError."""
        if (ids := self._ids) is not None:
            folder = self.job_folder(job_id)
            if folder.is_dir():
                give(folder, os.geteuid(), os.getegid())
            ids.give_back(f"job {job_id}")
            (self.state / "sandbox" / f"passwd-{job_id}").unlink(missing_ok=True)

    # --- the prefixes -------------------------------------------------------------------------------------

    def _hand_over(self, box: Box, uid: int) -> None:
        for folder in (*box.writable, box.tmp):
            give(folder, uid, uid)
        if self.mode is Mode.UID:
            for folder in (*box.writable, box.tmp):
                for parent in folder.parents:
                    if parent.is_relative_to(self.state) and parent.stat().st_uid == os.geteuid():
                        parent.chmod(0o711)

    def _mounts(self, box: Box) -> list[tuple[Path, str]]:
        """What lies over the machine's files, outer folders first: "hide", "read" or "write"."""
        found = {path: "hide" for path in (self.state, *self.hidden) if path.is_dir() and path.parent != path}
        needed = {*_code(), *(path.resolve() for path in self.readable), Path("/etc/resolv.conf").resolve()}
        for path in needed:
            if path.exists() and any(path.is_relative_to(folder) for folder in (*found, *_OWN)):
                found[path] = "read"
        found |= dict.fromkeys(box.writable, "write")
        return sorted(found.items(), key=lambda mount: len(mount[0].parts))

    def _bubblewrap(self, cwd: Path, box: Box, uid: int | None) -> list[str]:
        words = [program("bwrap"), "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"]
        for own in _OWN:
            # Not a tmpfs: what lies there would be memory that belongs to no process.
            place = box.tmp / "-".join(own.parts[1:])
            place.mkdir(mode=0o700)
            if uid is not None:
                os.chown(place, uid, uid)
            words += ["--bind", str(place), str(own)]
        hidden: list[Path] = []
        for path, how in self._mounts(box):
            over = [folder for folder in hidden if path.is_relative_to(folder)]
            if over or any(path.is_relative_to(own) for own in _OWN):
                top = over[-1] if over else Path("/")
                for parent in reversed(path.parents):
                    if parent != top and parent.is_relative_to(top):
                        words += ["--dir", str(parent)]
            if how == "hide":
                words += ["--tmpfs", str(path)]
                hidden.append(path)
            else:
                words += ["--bind" if how == "write" else "--ro-bind", str(path), str(path)]
        for path in hidden:
            words += ["--remount-ro", str(path)]
        for path in box.devices:
            words += ["--dev-bind", str(path), str(path)]
        # No namespace of control groups: Java 17 fails in one.
        words += ["--unshare-pid", "--unshare-ipc", "--unshare-uts"]
        words += ["--die-with-parent", "--new-session", "--chdir", str(cwd)]
        if uid is None:
            return [*words, "--unshare-user", "--", *_limited()]
        words += ["--ro-bind", str(self._accounts(box, uid)), "/etc/passwd"]
        for capability in ("SETUID", "SETGID", "SETPCAP"):
            words += ["--cap-add", f"CAP_{capability}"]
        return [*words, "--"]

    def _systemd(self, cwd: Path, box: Box, uid: int | None, group: int | None) -> list[str]:
        assert uid is not None
        properties = {
            "User": uid,
            "Group": uid,
            "SupplementaryGroups": group,
            "UMask": "0077",
            "WorkingDirectory": cwd,
            "ProtectSystem": "strict",
            "ProtectHome": "tmpfs",
            "ProtectProc": "invisible",
            "ProtectControlGroups": "yes",
            "ProtectKernelTunables": "yes",
            "PrivateTmp": "yes",
            "PrivateDevices": "yes",
            "PrivateIPC": "yes",
            "NoNewPrivileges": "yes",
            "CapabilityBoundingSet": "",
            "RestrictSUIDSGID": "yes",
            "RestrictNamespaces": "yes",
            "IPAddressDeny": METADATA_ADDRESS,
            "TasksMax": _PROCESSES_MOST,
            "LimitCORE": 0,
        }
        words = [program("systemd-run"), "--quiet", "--pipe", "--wait", "--collect", "--service-type=exec"]
        words += [f"--property={name}={value}" for name, value in properties.items()]
        kinds = {"hide": "TemporaryFileSystem", "read": "BindReadOnlyPaths", "write": "BindPaths"}
        for path, how in self._mounts(box):
            words.append(f"--property={kinds[how]}={path}{':ro' if how == 'hide' else ''}")
        words.append(f"--property=BindReadOnlyPaths={self._accounts(box, uid)}:/etc/passwd")
        # Beside PrivateDevices, which keeps all others away.
        for path in box.devices:
            words += [f"--property=BindPaths={path}", f"--property=DeviceAllow={path} rw"]
        return [*words, "--"]

    def _accounts(self, box: Box, uid: int) -> Path:
        """A list of users in which this one has a name: without, Java's Hadoop refuses to start."""
        file = self.state / "sandbox" / f"passwd-{box.owner}"
        if not file.exists():
            file.write_text(f"root:x:0:0::/:/usr/sbin/nologin\njob:x:{uid}:{uid}::/tmp:/usr/sbin/nologin\n")
            file.chmod(0o644)
        return file


NO_SANDBOX = Sandbox(Mode.NONE, Path())
"""Whoever submits a job has all rights of the scheduler."""


def program(name: str) -> str:
    """The absolute path of a program of the sandbox. Raises SandboxError."""
    found = shutil.which(name, path=_PATH)
    if found is None:
        raise SandboxError(f"there is no {name} in {_PATH}")
    return found


def _as(uid: int | None, group: int | None) -> list[str]:
    """As a user without any rights of its own."""
    if uid is None:
        return []
    words = [program("setpriv"), f"--reuid={uid}", f"--regid={uid}", f"--groups={group}", "--no-new-privs"]
    # A change of the user forgets who is to die with whom.
    words += ["--inh-caps=-all", "--bounding-set=-all", "--pdeathsig=KILL", "--"]
    return [*words, *_limited()]


def _limited() -> list[str]:
    return [program("prlimit"), f"--nproc={_PROCESSES_MOST}:{_PROCESSES_MOST}", "--"]


def _code() -> set[Path]:
    """Folders of the programs that jobs run with; they may lie inside somebody's home."""
    packages = [path for path in sys.path if path.endswith(("site-packages", "dist-packages"))]
    java = os.environ.get("JAVA_HOME") or shutil.which("java")
    found = {sys.prefix, sys.base_prefix, str(Path(spotweave.__file__).parents[1]), *packages}
    if java is not None:
        place = Path(java).resolve()
        found.add(str(place.parents[1] if place.is_file() else place))
    return {path for name in found for path in (Path(name), Path(name).resolve())}
