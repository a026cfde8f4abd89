"""Job files and what goes with them."""

from __future__ import annotations

from pathlib import Path

import pytest

from deploy import jobfile
from deploy.jobfile import MAX_BYTES, read_files, read_job
from deploy.model.jobs import JobSpec
from deploy.server.settings import ServerSettings
from deploy.yamlfile import ConfigError

ROOT = Path(__file__).resolve().parents[2]


def spec(*args: str, script: str = "run.py") -> JobSpec:
    return JobSpec.model_validate(
        {"name": "job", "work": {"kind": "spark-batch", "script": script, "args": args}}
    )


GIS = {f"workflows/{script}.py" for script in ("accumulate", "join", "mean", "median")}


@pytest.mark.parametrize(
    ("name", "files"),
    [
        ("wordcount", {"wordcount.py", "gettysburg.txt"}),
        ("bag", {"primes.py"}),
        ("gis", GIS),
        ("streaming", None),
        ("federated_mnist", None),
        ("fed_suda", None),
    ],
)
def test_the_examples_can_be_read(name: str, files: set[str] | None) -> None:
    path = ROOT / "examples" / f"{name}.yaml"
    found = set(read_files(read_job(path), path.parent))
    assert found
    assert files is None or found == files
    assert not [file for file in found if file.startswith("/") or "__pycache__" in file]
    if name.startswith("fed"):
        assert "federated_mnist/pyproject.toml" in found


def test_the_largest_job_fits_into_a_request() -> None:
    # In base64 four characters for three bytes; names, arguments and the rest of the request come on top.
    assert ServerSettings().job_bytes > MAX_BYTES * 4 / 3 + (1 << 20)


def test_too_much_is_refused_before_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobfile, "MAX_BYTES", 1 << 20)
    (tmp_path / "run.py").write_text("")
    (tmp_path / "data").mkdir()
    for name in ("a", "b"):
        (tmp_path / "data" / name).write_bytes(bytes(600_000))
    with pytest.raises(ConfigError, match="more than 1 MiB"):
        read_files(spec("data"), tmp_path)
    assert len(read_files(spec("data/a"), tmp_path)) == 2


def test_an_argument_is_a_file_only_if_it_is_one_there(tmp_path: Path) -> None:
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs" / "run.py").write_text("1")
    (tmp_path / "beside").write_text("not in the folder")
    found = read_files(spec("x" * 4000, "../beside", ".", "", "3", script="./run.py"), tmp_path / "jobs")
    assert found == {"run.py": b"1"}
