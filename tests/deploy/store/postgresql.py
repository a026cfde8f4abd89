"""A real PostgreSQL for tests: a server in a temporary directory, reached by a unix socket only."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg

_SEARCH = ("/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin", "/opt/homebrew/opt/postgresql*/bin")
_START_S = 60.0


def binaries() -> Path | None:
    """The folder with initdb and postgres; None where PostgreSQL is not installed."""
    on_path = shutil.which("initdb")
    folders = [Path(on_path).resolve().parent] if on_path else []
    for pattern in _SEARCH:
        folders += sorted(Path("/").glob(pattern.lstrip("/")), reverse=True)
    return next((one for one in folders if (one / "initdb").exists() and (one / "postgres").exists()), None)


def missing() -> str | None:
    """Why no server can be started here; None if one can."""
    if binaries() is None:
        return "PostgreSQL is not installed (initdb and postgres)"
    if os.geteuid() == 0 and shutil.which("setpriv") is None:
        return "PostgreSQL refuses to run as root, and there is no setpriv to run it as another user"
    return None


def _user() -> pwd.struct_passwd:
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise RuntimeError("there is neither a user postgres nor nobody")


@contextmanager
def server() -> Iterator[Path]:
    """Run one; gives the folder of its socket. It ends with the block, or when this process is killed."""
    folder = binaries()
    assert folder is not None
    # Not under pytest's own folder: that one is closed to other users, and too long for a socket's name.
    home = Path(tempfile.mkdtemp(prefix="pg-", dir="/tmp"))
    as_user: list[str] = []
    if shutil.which("setpriv"):
        as_user = ["setpriv", "--pdeathsig", "QUIT"]
        if os.geteuid() == 0:
            user = _user()
            os.chown(home, user.pw_uid, user.pw_gid)
            as_user += [f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"]
    environment = {"PATH": os.environ["PATH"], "LANG": "C", "HOME": str(home)}
    process = None
    try:
        options = ["-U", "tests", "-A", "trust", "-E", "UTF8", "--no-sync", "--no-locale", str(home / "data")]
        made = subprocess.run(
            [*as_user, str(folder / "initdb"), *options],
            cwd=home,
            env=environment,
            capture_output=True,
            text=True,
        )
        assert made.returncode == 0, made.stderr
        # Nothing of this outlives the tests, so the server need not wait for the disk.
        settings = ["--listen-addresses=", "--fsync=off", "--max-connections=100", "--shared-buffers=32MB"]
        with (home / "log").open("wb") as log:
            process = subprocess.Popen(
                [*as_user, str(folder / "postgres"), "-D", str(home / "data"), "-k", str(home), *settings],
                cwd=home,
                env=environment,
                stdout=log,
                stderr=log,
            )
        _wait(home, process)
        yield home
    finally:
        if process is not None:
            # At once: nothing of it is needed any more.
            process.send_signal(signal.SIGQUIT)
            try:
                process.wait(timeout=30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        shutil.rmtree(home, ignore_errors=True)


def _wait(home: Path, process: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + _START_S
    while True:
        try:
            psycopg.connect(url(home, "postgres")).close()
            return
        except psycopg.OperationalError:
            if process.poll() is not None or time.monotonic() > end:
                raise RuntimeError((home / "log").read_text()) from None
            time.sleep(0.05)


def url(home: Path, database: str) -> str:
    return f"postgresql://tests@/{database}?host={home}"


def create_database(home: Path, name: str) -> str:
    """An empty database; gives its URL."""
    with psycopg.connect(url(home, "postgres"), autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}" TEMPLATE template0')
    return url(home, name)


def drop_database(home: Path, name: str) -> None:
    """Remove a database; connections to it are cut."""
    with psycopg.connect(url(home, "postgres"), autocommit=True) as connection:
        connection.execute(f'DROP DATABASE "{name}" WITH (FORCE)')
