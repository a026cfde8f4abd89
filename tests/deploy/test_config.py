"""Deployment files and job files: what is read, and one line for what cannot be."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from spotweave.deploy import jobfile
from spotweave.deploy.config import CheckpointsConfig, DeploymentConfig
from spotweave.deploy.jobfile import MAX_BYTES, read_files, read_job
from spotweave.deploy.model.jobs import JobSpec, SparkBatch
from spotweave.deploy.server.context import ServerSettings
from spotweave.deploy.store.intents import Mode
from spotweave.deploy.yamlfile import ConfigError

ROOT = Path(__file__).resolve().parents[2]
Load = Callable[..., DeploymentConfig]
FILE = "state: state\nproviders: {local: offers.yaml}\n"


@pytest.fixture
def load(tmp_path: Path) -> Load:
    def loaded(more: str = "", file: str = FILE) -> DeploymentConfig:
        (tmp_path / "deployment.yaml").write_text(file + more, encoding="utf-8")
        return DeploymentConfig.load(tmp_path / "deployment.yaml")

    return loaded


def test_what_is_left_out_has_its_default(load: Load) -> None:
    config = load()
    assert (config.policy.market, config.policy.federated) == ("spotweave", "spotweave")
    assert config.policy.mode is Mode.ACT
    assert config.store_url.startswith("sqlite:///")
    assert config.key_file is None
    http = config.http
    assert (http.host, http.port, http.tokens, http.tls) == ("127.0.0.1", 8421, True, None)


def test_what_is_said_holds(load: Load) -> None:
    shadow = load("policy: {mode: shadow}\n").policy
    assert shadow.mode is Mode.SHADOW
    assert (shadow.acting.market, shadow.market) == ("expected_cost", "spotweave")
    one = load("policy: cheapest\n").policy
    assert (one.market, one.federated, one.mode) == ("cheapest", None, Mode.ACT)
    assert load("policy: {mode: dry-run}\n").policy.mode is Mode.DRY_RUN
    http = load("http: {connections: 9, quotas: {live_jobs: 5, free_disk_mib: 0}}\n").http
    assert (http.connections, http.connections_each) == (9, 500)
    assert (http.quotas.live_jobs, http.quotas.free_disk_mib, http.quotas.jobs_a_minute) == (5, 0, 60)
    open_to_all = load("http: {tokens: false, port: 9000}\n").http
    assert (open_to_all.port, open_to_all.tokens) == (9000, False)
    elsewhere = load("store: postgresql://me@host/name\n")
    assert elsewhere.key_file == elsewhere.state_folder / "deployment.key"


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ("policy: {mode: shade}\n", "policy.mode"),
        ("policy: {acting: expected_cost}\n", "policy.acting"),
        ("scheduler: {reconsider_s: -1}\n", "scheduler.reconsider_s"),
        ("polciy: {}\n", "polciy"),
        ("http: {quotas: {live_jobs: 0}}\n", "http.quotas.live_jobs"),
        ("http: {quotas: {jobs: 1}}\n", "http.quotas.jobs"),
        ("http: {connections: many}\n", "http.connections"),
        ("scheduler: {period_s: 0}\n", "scheduler.period_s"),
        (": : :\n", "is not YAML"),
        ("runners: {checkpoints: 's3://Upper/a'}\n", "runners.checkpoints.spark"),
        ("runners: {checkpoints: kept}\n", "runners.checkpoints.flower"),
        ("runners: {checkpoints: {flower: 'hdfs://h/a'}}\n", "runners.checkpoints.flower"),
        ("runners: {checkpoints: {flowers: /mnt/kept}}\n", "runners.checkpoints.flowers"),
        ("", "providers: "),
        ("providers: {}\n", "providers: "),
        # The mistyped key is told before the one that it should have been.
        ("provider: {local: offers.yaml}\n", "provider: unknown key"),
        *((f"budget_usd: {given}\n", "budget_usd") for given in ("0", "-1", "much", ".inf")),
    ],
)
def test_mistakes_are_one_line(load: Load, tmp_path: Path, more: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as refused:
        load(more, file="state: state\n" if message.startswith("provider") else FILE)
    file = tmp_path / "deployment.yaml"
    assert str(refused.value).startswith((f"{file}: ", f"{file} is not YAML: "))
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("given", "spark", "flower"),
    [
        ("s3://spotweave-1/a", "s3a://spotweave-1/a", "s3://spotweave-1/a"),
        ("s3a://spotweave-1/a/", "s3a://spotweave-1/a", "s3a://spotweave-1/a/"),
        ("/mnt/kept", "/mnt/kept", "/mnt/kept"),
        ("{flower: /mnt/kept}", None, "/mnt/kept"),
        ("{spark: 'hdfs://h/a'}", "hdfs://h/a", None),
    ],
)
def test_one_place_for_checkpoints_is_for_both_kinds(
    load: Load, given: str, spark: str | None, flower: str | None
) -> None:
    config = load(f"runners: {{checkpoints: {given}}}\n")
    assert config.runners.checkpoints == CheckpointsConfig(spark=spark, flower=flower)


def test_a_dry_run_changes_nothing_else(load: Load) -> None:
    config = load("policy: {market: cheapest}\n")
    dry = config.dry_run()
    assert (dry.policy.mode, dry.policy.market) == (Mode.DRY_RUN, "cheapest")
    assert dry.model_copy(update={"policy": config.policy}) == config


AWS = """
regions:
  us-east-1: {image: ami-00000000, security_group: sg-00000000, subnets: {us-east-1a: subnet-00000000}}
instance_types: {g4dn.xlarge: {quota: 1}}
node: {scheduler_url: "https://scheduler.example:8443"}
"""


def test_a_provider_that_is_not_installed_is_named(load: Load) -> None:
    config = load(file="state: state\nproviders: {abc: abc.yaml}\n")
    with pytest.raises(ConfigError, match="no provider 'abc' is installed: expected aws, gcp, local"):
        config.rented()


def test_instances_elsewhere_must_reach_what_runs_jobs_here(load: Load, tmp_path: Path) -> None:
    (tmp_path / "aws.yaml").write_text(AWS)
    file = "state: state\nproviders: {aws: aws.yaml}\n"
    with pytest.raises(ConfigError, match=r"runners\.address is 127\.0\.0\.1, which instances of AWS cannot"):
        load(file=file).rented()
    reached = load("runners: {address: 10.0.0.10}\n", file=file)
    assert reached.rented()["aws"].state_folder == reached.state_folder / "aws"
    for address in ("0.0.0.0", "scheduler", "::"):
        with pytest.raises(ConfigError, match=r"runners\.address"):
            load(f"runners: {{address: '{address}'}}\n", file=file).rented()
    # An emulated AWS, whose instances are processes of this machine.
    (tmp_path / "aws.yaml").write_text(AWS.replace("https://scheduler.example", "http://127.0.0.1"))
    assert list(load(file=file).rented()) == ["aws"]


@pytest.mark.parametrize("name", ["aws", "demo", "demo_aws", "local"])
def test_the_example_deployments_are_ones(name: str) -> None:
    config = DeploymentConfig.load(ROOT / "configs" / "deploy" / f"{name}.yaml")
    assert config.rented()


def spec(*args: str, script: str = "run.py") -> JobSpec:
    return JobSpec(name="job", work=SparkBatch(script=script, args=args))


GIS = {f"workflows/{script}.py" for script in ("accumulate", "join", "mean", "median")}


@pytest.mark.parametrize(
    ("name", "files"),
    [
        ("wordcount", {"wordcount.py", "gettysburg.txt"}),
        ("bag", {"primes.py"}),
        ("gis", GIS),
        ("streaming", None),
        ("federated_mnist", None),
        ("federated_gpu", None),
        ("federated_one_gpu", None),
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
        assert {"federated_mnist/pyproject.toml", "federated_mnist/federated_mnist/client_app.py"} <= found


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
    conf = 'conf: {spark.files: "jobs/near.py,s3a://b/c"}'
    work = f"{{kind: spark-batch, script: jobs/main.py, py_files: [jobs/other], {conf}}}"
    (tmp_path / "job.yaml").write_text(f"{{name: job, work: {work}}}")
    read = read_job(tmp_path / "job.yaml")
    assert isinstance(read.work, SparkBatch)
    assert read.work.py_files == ("jobs/other.folder.zip", "jobs/helpers.folder.zip", "jobs/tools.py")
    files = read_files(read, tmp_path)
    assert set(files) == {"jobs/main.py", "jobs/near.py", *read.work.py_files}
    assert read_files(read, tmp_path) == files
    packages = {"other": ["other/lib.py"], "helpers": ["helpers/__init__.py", "helpers/clean.py"]}
    for name, inside in packages.items():
        with zipfile.ZipFile(io.BytesIO(files[f"jobs/{name}.folder.zip"])) as packed:
            assert packed.namelist() == inside
