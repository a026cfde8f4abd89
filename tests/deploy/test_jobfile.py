"""Job files and what goes with them."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import pytest

from deploy import jobfile
from deploy.jobfile import MAX_BYTES, read_files, read_job
from deploy.model.jobs import JobSpec, SparkBatch
from deploy.server.settings import ServerSettings
from deploy.yamlfile import ConfigError

ROOT = Path(__file__).resolve().parents[2]


def spec(*args: str, script: str = "run.py") -> JobSpec:
    return JobSpec.model_validate(
        {"name": "job", "work": {"kind": "spark-batch", "script": script, "args": args}}
    )


@pytest.mark.parametrize("name", ["wordcount", "streaming", "federated_mnist", "fed_suda", "bag", "gis"])
def test_the_examples_can_be_read(name: str) -> None:
    path = ROOT / "examples" / f"{name}.yaml"
    files = read_files(read_job(path), path.parent)
    assert files
    assert not [file for file in files if file.startswith("/") or "__pycache__" in file]
    if name in ("federated_mnist", "fed_suda"):
        assert "federated_mnist/pyproject.toml" in files
    if name == "bag":
        assert set(files) == {"primes.py"}
    if name == "gis":
        scripts = ("accumulate", "join", "mean", "median")
        assert set(files) == {f"workflows/{script}.py" for script in scripts}
    if name == "wordcount":
        assert set(files) == {"wordcount.py", "gettysburg.txt"}


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


def test_what_a_script_imports_from_beside_it_goes_with_it(tmp_path: Path) -> None:
    (tmp_path / "jobs" / "helpers").mkdir(parents=True)
    (tmp_path / "jobs" / "other").mkdir()
    for name, text in {
        "main.py": "import os, pyspark\nfrom helpers.clean import twice\nfrom .near import x\n",
        "helpers/__init__.py": "",
        "helpers/clean.py": "import tools\ndef twice(x): return 2 * x\n",
        "tools.py": "import main\n",
        "near.py": "",
        "unused.py": "",
        "other/lib.py": "VALUE = 1\n",
    }.items():
        (tmp_path / "jobs" / name).write_text(text)
    (tmp_path / "job.yaml").write_text(
        """{name: job, work: {kind: spark-batch, script: jobs/main.py, py_files: [jobs/other],
        conf: {spark.files: "jobs/near.py,s3a://b/c"}}}"""
    )
    read = read_job(tmp_path / "job.yaml")
    assert isinstance(read.work, SparkBatch)
    assert read.work.py_files == ("jobs/other.folder.zip", "jobs/helpers.folder.zip", "jobs/tools.py")
    files = read_files(read, tmp_path)
    assert set(files) == {"jobs/main.py", "jobs/near.py", *read.work.py_files}
    assert read_files(read, tmp_path) == files
    for name, inside in (
        ("other", ["other/lib.py"]),
        ("helpers", ["helpers/__init__.py", "helpers/clean.py"]),
    ):
        with zipfile.ZipFile(io.BytesIO(files[f"jobs/{name}.folder.zip"])) as packed:
            assert packed.namelist() == inside
