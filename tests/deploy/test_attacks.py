"""Sixty attacks on every runner: what is uploaded, what a job leaves in its folder, and what it asks for.

None of them may read or write a byte outside of the job's folder, or take the controller's memory or time.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import os
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from spotweave.deploy import jobfile
from spotweave.deploy.model.jobs import JobSpec
from spotweave.deploy.objects.location import ObjectsError
from spotweave.deploy.runners.bag.runner import check as check_bag
from spotweave.deploy.runners.bag.task import packed
from spotweave.deploy.runners.flower.app import check as check_app
from spotweave.deploy.runners.flower.checkpoints import read_status
from spotweave.deploy.runners.flower.inspecting import Inspector
from spotweave.deploy.runners.jobfolder import JobFolder, PoisonError
from spotweave.deploy.runners.spark.application import BatchLog
from spotweave.deploy.runners.spark.driver import check_job
from spotweave.deploy.runners.workflow.files import check as check_workflow
from spotweave.deploy.runners.workflow.files import digest_of
from spotweave.deploy.security import untrusted
from spotweave.deploy.security.sandbox import NO_SANDBOX
from spotweave.deploy.security.tokens import Role
from spotweave.deploy.server.admission import Quotas
from spotweave.deploy.server.deciding import Deciders
from spotweave.deploy.store.store import Store
from tests.deploy.hostile import TRICKS, Trick, dig, memory, terabyte
from tests.deploy.runners.flower.world import MEAN
from tests.deploy.server.service import NOW, Service, make_service, one_line_error
from tests.deploy.workflows import step

MEMORY = 50 << 20
SECRET = "another submitter's"
ANCHORS = b"a: &a [x]\n" + b"".join(
    f"{chr(98 + k)}: &{chr(98 + k)} [{', '.join([f'*{chr(97 + k)}'] * 9)}]\n".encode() for k in range(9)
)


def jar(manifest: bytes, **more: bytes) -> bytes:
    found = io.BytesIO()
    with zipfile.ZipFile(found, "w", zipfile.ZIP_DEFLATED) as target:
        for name, content in {"META-INF/MANIFEST.MF": manifest, **more}.items():
            target.writestr(name, content)
    return found.getvalue()


PROGRAMS: dict[str, dict[str, bytes]] = {
    "spark-batch": {"x.py": b"1"},
    "spark-streaming": {"x.py": b"1"},
    "flower": {
        f"app/{path.relative_to(MEAN).as_posix()}": path.read_bytes()
        for path in MEAN.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    },
    "bag": {"run.sh": b"true"},
    "workflow": {"x.py": b"1"},
}
STEP = {**step("one"), "script": "x.py"}
KINDS = [
    *("spark-batch", "spark-streaming", "bag", "workflow"),
    pytest.param("flower", marks=pytest.mark.real),  # half a second each: its app is read in a process
]
WORK: dict[str, dict[str, Any]] = {
    "spark-batch": {"script": "x.py"},
    "spark-streaming": {"script": "x.py", "period_s": 60, "batch_deadline_s": 60},
    "flower": {"app": "app", "rounds": 2, "clients": [{"name": "a"}]},
    "bag": {"tasks": [{"name": "one", "command": ["sh", "run.sh"], "minutes": 1.0}]},
    "workflow": {"steps": [STEP]},
}

UPLOADS: dict[str, Mapping[str, bytes]] = {
    "a path that goes up": {"../out": b"x"},
    "a path that goes up further in": {"a/../../../out": b"x"},
    "an absolute path": {"/etc/spotweave-attack": b"x"},
    "a path of the service's own": {".spotweave-upload.json": b"{}"},
    "a log of the service's own": {"logs/driver-1.log": b"x"},
    "a checkpoint of the service's own": {"checkpoint/x": b"x"},
    "what Flower's runner writes": {"flower/status.json": b"{}"},
    "a folder and a file of one name": {"a": b"x", "a/b": b"x"},
    "a name of a megabyte": {"x" * (1 << 20): b"x"},
    "a path of a thousand folders": {"/".join("a" * 1000): b"x"},
    "a zero byte": {"a\0b": b"x"},
    "a new line": {"a\nb": b"x"},
    "a terminal's escape": {"\x1b[2J": b"x"},
    "a text that runs backwards": {"\u202eyp.x": b"x"},
    "a backslash": {"..\\out": b"x"},
    "a name of spaces": {" ": b"x"},
    "an empty name": {"": b"x"},
    "a dot": {".": b"x"},
    "half a surrogate": {"\udcff": b"x"},
    "a jar that unpacks to much": {"x.jar": jar(b"Main-Class: x\n" * 5_000_000)},
    "a jar that is cut": {"x.jar": jar(b"Main-Class: x\n")[:-9]},
    "an archive that goes up": {"x.zip": jar(b"", **{"../../out": b"x"})},
    "a zip in a zip": {"x.zip": jar(b"", **{"x.zip": jar(b"")})},
    "aliases by the billion": {"app/pyproject.toml": ANCHORS, "job.yaml": ANCHORS},
    "brackets without end": {"app/pyproject.toml": b"a = " + b"[" * 100_000},
    "a project of a megabyte": {"app/pyproject.toml": b"a = 1\n" * 150_000},
    "a pattern that is matched for ever": {"app/.gitignore": b"**/*" * 10_000},
    "ten thousand files": {f"many/{k}": b"" for k in range(10_000)},
    "a module that shadows the library": {"json.py": b"raise SystemExit", "sitecustomize.py": b"1/0"},
    "a module that shadows Spark": {"pyspark/__init__.py": b"1/0", "flwr/__init__.py": b"1/0"},
    "a startup file": {".bashrc": b"exit 1", "usercustomize.py": b"1/0"},
    "hooks of git": {".git/hooks/post-checkout": b"#!/bin/sh\nid", ".git/config": b"[core]\nfsmonitor = id"},
}
"""Files besides, or in place of, the program's."""


def _many(place: Path, secret: Path) -> None:
    place.mkdir()
    for k in range(1_200):
        (place / str(k)).touch()


def _deep(place: Path, secret: Path) -> None:
    place.mkdir()
    dig(place, 2100)


LEFT: dict[str, Trick] = {
    **TRICKS,
    "a terabyte of nothing": terabyte,
    "a file of no rights": lambda place, secret: os.close(os.open(place, os.O_CREAT, 0)),
    "bytes that are no text": lambda place, secret: place.write_bytes(b"\xff\0\xfe" * 1000),
    "brackets without end": lambda place, secret: place.write_bytes(b"[" * 200_000),
    "a number without end": lambda place, secret: place.write_bytes(b'{"run": ' + b"9" * 200_000 + b"}"),
    "a line without end": lambda place, secret: place.write_bytes(b"x" * (8 << 20)),
    "twelve hundred files": _many,
    "folders deeper than a path": _deep,
}
"""What a job's code may put in the place of what the scheduler reads."""


def _batches(job: Path) -> object:
    return BatchLog(job / "events", job.parent / "counted.json", 60.0).read()


READERS: dict[str, tuple[str, Callable[[Path], object]]] = {
    "spark: the driver's log": ("logs/1.log", lambda job: untrusted.tail(job, "logs/1.log", 1 << 18)),
    "spark: a folder of event logs": ("events/1", _batches),
    "spark: an event log": ("events/1/eventlog_v2_app/events_1_app", _batches),
    "flower: the status": ("flower/status.json", lambda job: read_status(JobFolder(job), 5)),
    "flower: the checkpoints": ("flower/kept", lambda job: JobFolder(job).names("flower/kept", 100)),
    "bag: what goes to an instance": ("given", lambda job: packed(job, ("given",))),
    "workflow: what a step wrote": ("workspace/out", lambda job: digest_of(job, "workspace/out")),
    "all: a file to write": ("flower/given", lambda job: JobFolder(job).write("flower/given/x", b"x")),
}
REFUSED = (PoisonError, OSError, ObjectsError)

VARIABLES = """
LD_PRELOAD LD_LIBRARY_PATH LD_AUDIT LD_DEBUG GCONV_PATH GLIBC_TUNABLES PATH HOME
PYTHONPATH PYTHONHOME PYTHONSTARTUP PYTHONWARNINGS PYTHONBREAKPOINT PYTHONINSPECT
JAVA_TOOL_OPTIONS _JAVA_OPTIONS JDK_JAVA_OPTIONS CLASSPATH BASH_ENV ENV IFS SHELLOPTS
GIT_DIR GIT_SSH_COMMAND GIT_EXTERNAL_DIFF PERL5OPT NODE_OPTIONS TMPDIR SSL_CERT_FILE
http_proxy AWS_ENDPOINT_URL GOOGLE_APPLICATION_CREDENTIALS
"""
RESERVED = ("SPOTWEAVE_TOKEN", "SPOTWEAVE_JOB_ID")
OF_SPARK = ("SPARK_HOME", "SPARK_CONF_DIR", "PYSPARK_PYTHON", "JAVA_HOME", "SPARK_SUBMIT_OPTS")


@pytest.fixture(scope="module")
def checks(tmp_path_factory: pytest.TempPathFactory) -> Callable[[JobSpec, str], None]:
    """What the real runners say of a job when it is submitted."""
    inspector = Inspector(tmp_path_factory.mktemp("inspector").resolve(), NO_SANDBOX)

    def check(spec: JobSpec, folder: str) -> None:
        if spec.work.kind == "flower":
            check_app(spec, Path(folder), inspector.look)
        elif spec.work.kind == "bag":
            check_bag(spec)
        elif spec.work.kind == "workflow":
            check_workflow(spec, Path(folder), {})
        else:
            check_job(spec, Path(folder))

    return check


@pytest.fixture(scope="module")
def service(
    tmp_path_factory: pytest.TempPathFactory, checks: Callable[[JobSpec, str], None]
) -> Iterator[Service]:
    folder = tmp_path_factory.mktemp("service")
    (folder / "secret").write_text(SECRET)
    quotas = Quotas(jobs_a_minute=10_000, free_disk_mib=0)
    with Store.open(f"sqlite:///{folder}/store.db", NOW, durable=False) as store:
        made = make_service(folder, store, Deciders.load("cheapest", None), quotas=quotas)
        made.scheduler.check = checks  # type: ignore[method-assign, assignment]
        yield made


def outside(service: Service) -> dict[str, str]:
    """Digests of all that is beside the folders of jobs, but for the store."""
    root = service.jobs.parent
    return {
        str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(root.rglob("*"))
        if path.is_file() and service.jobs not in path.parents and "store" not in path.name
    }


def submit(service: Service, kind: str, files: Mapping[str, bytes], **work: Any) -> tuple[int, str]:
    """Status and, where it is refused, the line that says why; no other memory than the request's stays.

    Nothing is written beside the job's folder, and nothing in it leads elsewhere.
    """
    before, environment = outside(service), dict(os.environ)
    spec = {"name": "attack", "work": {"kind": kind, **WORK[kind], **work.pop("work", {})}, **work}
    contents = {name: base64.b64encode(content).decode() for name, content in files.items()}
    body = json.dumps({"spec": spec, "files": contents}).encode()
    kinds = {"Content-Type": "application/json"}
    with memory() as peak:
        answer = service.submitter.post("/v1/jobs", content=body, headers=kinds)
    # The request itself is read, decoded and validated.
    assert peak[0] < MEMORY + 5 * len(body)
    assert service.as_(None).get("/healthz").status_code == 200
    assert (outside(service), dict(os.environ)) == (before, environment)
    for path in service.jobs.rglob("*"):
        assert path.resolve().is_relative_to(service.jobs.resolve())
    for name in service.folders():
        untrusted.remove_tree(service.jobs / name)
    if answer.status_code < 400:
        service.as_(Role.ADMIN).delete(f"/v1/jobs/{answer.json()['job_id']}")
        return answer.status_code, ""
    assert answer.status_code < 500
    return answer.status_code, one_line_error(answer)


@pytest.mark.parametrize("kind", KINDS)
def test_the_program_alone_is_accepted(service: Service, kind: str) -> None:
    assert submit(service, kind, PROGRAMS[kind]) == (201, "")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("attack", UPLOADS)
def test_an_upload_changes_nothing_outside_its_folder(service: Service, kind: str, attack: str) -> None:
    files = UPLOADS[attack]
    work = {"script": "x.jar"} if "x.jar" in files and kind.startswith("spark") else {}
    with suppress(UnicodeEncodeError):  # half a surrogate does not get as far as the network
        submit(service, kind, {**PROGRAMS[kind], **files}, work=work)
    assert not Path("/etc/spotweave-attack").exists()


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "bag"])
@pytest.mark.parametrize(
    "name", ["../../secret", "/etc/hostname", "x/../../../secret", "file:///etc/hostname"]
)
def test_a_program_that_lies_elsewhere_is_refused(service: Service, kind: str, name: str) -> None:
    special = {"flower": {"app": name}, "workflow": {"steps": [{**STEP, "script": name}]}}
    status, told = submit(service, kind, PROGRAMS[kind], work=special.get(kind, {"script": name}))
    assert status == 422
    assert SECRET not in told


@pytest.mark.parametrize("kind", KINDS)
def test_a_variable_is_the_jobs_own_or_refused(service: Service, kind: str) -> None:
    """What is accepted is set inside of the sandbox: `security/test_sandbox.py`. Here nothing obeys it."""
    obeyed = OF_SPARK if kind.startswith(("spark", "workflow")) else ()
    own = {*VARIABLES.split(), *OF_SPARK} - {*obeyed}
    assert submit(service, kind, PROGRAMS[kind], env=dict.fromkeys(own, "./evil.so")) == (201, "")
    for name in (*RESERVED, *obeyed):
        assert submit(service, kind, PROGRAMS[kind], env={name: "./evil.so"})[0] == 422


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize(
    "left", [pytest.param(one, marks=pytest.mark.real) if "deeper" in one else one for one in LEFT]
)
def test_what_a_job_leaves_is_bounded_and_no_link_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reader: str, left: str
) -> None:
    monkeypatch.setattr(jobfile, "MOST_FILES", 1_000)
    place, read = READERS[reader]
    job, secret = tmp_path / "jobs" / "mine", tmp_path / "others" / "secret"
    secret.parent.mkdir(parents=True)
    secret.write_text(SECRET)
    (job / place).parent.mkdir(parents=True)
    LEFT[left](job / place, secret)
    with memory() as peak, suppress(*REFUSED):
        assert SECRET not in repr(read(job))
    assert peak[0] < MEMORY
    assert secret.read_text() == SECRET
    assert sorted(secret.parent.iterdir()) == [secret]
    untrusted.give(job, os.geteuid(), os.getegid())
    assert left != "folders deeper than a path" or untrusted.size_bytes(job, 1 << 40, 10**6) > 1 << 40
    untrusted.remove_tree(job)
    assert not job.exists()
