"""The live commands cost nothing until they run, refuse mistakes in one line, make tokens and backups."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

import httpx
import pytest
import yaml
from click.testing import Result

from spotweave.agents.stored import load_policy_state
from spotweave.deploy.config import DeploymentConfig
from spotweave.deploy.server.run import bind
from spotweave.deploy.service import Service, load_policies, open_store
from spotweave.training.checkpoint import save_policy_state, write_policy
from tests.deploy.cli.commands import NO_JAVA, ROOT, deployment, out, refusal, served, spotweave
from tests.deploy.node.agents import wait_until


@pytest.mark.parametrize(
    ("words", "absent", "extra"),
    [
        (["jobs"], ("httpx", "fastapi", "sqlalchemy", "structlog"), "deploy"),
        (["emulate", "aws", "--config", "none.yaml"], ("moto",), "dev"),
    ],
)
def test_without_the_extra_it_says_how_to_install_it(
    words: list[str], absent: tuple[str, ...], extra: str
) -> None:
    """Nor is any of it loaded before a command needs it."""
    without = f"import sys; sys.modules |= dict.fromkeys({absent})"
    command = [sys.executable, "-c", f"{without}; from spotweave.cli import app; app({words})"]
    told = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert told.returncode == 2
    line = rf"error: this command needs (\w+) and more: pip install 'spotweave\[{extra}\]'\n"
    needed = re.fullmatch(line, told.stderr)
    assert needed, told.stderr
    assert needed[1] in absent


HTTP = "expected http(s)://HOST:PORT"
CREATE = "token create --config CONFIG --name"
# Those that need nothing of a deployment are in the golden file.
MISTAKES = [
    (f"{CREATE} NOTHING --role admin", "printable"),
    (f"{CREATE} me --role admin --days -1", "more than 0"),
    ("token revoke --config CONFIG none", "no access token 'none'"),
    ("serve --config CONFIG --log-format xml", "expected json or console"),
    ("serve --config CONFIG --log-level loud", "expected one of debug"),
    ("backup --config NEW --to NONE", "nothing was served"),
    ("backup --config POSTGRESQL --to NONE", "pg_dump"),
    ("restore --config POSTGRESQL --from NONE", "pg_dump"),
    ("restore --config CONFIG --from NONE", "there is no backup"),
    ("record --config CONFIG --out NONE", "rents from no cloud"),
    ("clouds policy --config CONFIG", "rents nothing from AWS"),
    ("offers --config CONFIG --server http://x", "give one of them"),
    ("emulate aws --config NONE", "cannot read"),
    ("backup --to NONE", "there is no spotweave.yaml here: give the deployment's file, --config FILE or"),
    ("token lst", "No such command 'lst'. Did you mean 'list'? (see spotweave token --help)"),
    ("jobs --server 127.0.0.1:8421", HTTP),
    ("jobs --server ftp://127.0.0.1", HTTP),
    ("jobs --server http://", HTTP),
]


@pytest.fixture(scope="module")
def mistaken(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """What words of a mistaken command stand for; as nothing is changed, all of them share it."""
    folder = tmp_path_factory.mktemp("mistaken")
    unreachable = {"store": "postgresql://user@127.0.0.1:1/db"}
    for name, changes in (("config", {}), ("new", {}), ("postgresql", unreachable)):
        (folder / name).mkdir()
        deployment(folder / name, **changes)
    files = {name.upper(): folder / name / "deployment.yaml" for name in ("config", "new", "postgresql")}
    out(spotweave("token", "list", "--config", files["CONFIG"]))
    return {**files, "NONE": folder / "none"}


@pytest.mark.parametrize(("command", "message"), MISTAKES)
def test_a_mistake_is_one_line_and_changes_nothing(
    command: str, message: str, mistaken: dict[str, Path]
) -> None:
    folder = mistaken["NONE"].parent
    before = sorted(folder.rglob("*"))
    words = ["" if word == "NOTHING" else mistaken.get(word, word) for word in command.split()]
    assert message in refusal(spotweave(*words, env=NO_JAVA))
    assert sorted(folder.rglob("*")) == before
    assert names(mistaken["CONFIG"]) == []


def test_a_token_is_shown_once_listed_without_its_secret_and_revoked(tmp_path: Path) -> None:
    config = deployment(tmp_path)
    assert out(spotweave("token", "list", "--config", config)).startswith("no access token yet")
    made = spotweave("token", "create", "--config", config, "--role", "viewer", "--name", "ci", "--days", "2")
    prefix, token_id, secret = out(made).strip().split("_", 2)
    assert prefix == "spw"
    assert "(ci, viewer) expires" in made.stderr
    listed = spotweave("token", "list", "--config", config).stdout
    assert token_id in listed
    assert secret not in made.stderr + listed
    (record,) = json.loads(spotweave("token", "list", "--config", config, "--json").stdout)
    assert (record["role"], record["name"]) == ("viewer", "ci")
    assert record["expires_s"] - record["created_s"] == 2 * 86_400
    assert "digest" not in record
    assert spotweave("token", "revoke", "--config", config, token_id).exit_code == 0
    assert "revoked" in spotweave("token", "list", "--config", config).stdout
    with open_store(DeploymentConfig.load(config), 0.0) as store:
        assert [event.kind for event in store.events.latest(9)] == ["token.created", "token.revoked"]
    # What holds secrets is only for this user.
    state = tmp_path / "state"
    for path, mode in ((state, 0o700), (state / "store.db", 0o600), (state / "store.db.key", 0o600)):
        assert os.stat(path).st_mode & 0o777 == mode


def names(config: Path) -> Sequence[str]:
    """Of the tokens, as something that is easily written and seen."""
    with open_store(DeploymentConfig.load(config), 0.0) as store:
        return [record.name for record in store.tokens.all()]


def add(config: Path, name: str, role: str = "viewer") -> str:
    return out(spotweave("token", "create", "--config", config, "--role", role, "--name", name)).strip()


def restore(config: Path, saved: Path) -> Result:
    return spotweave("restore", "--config", config, "--from", saved)


@pytest.fixture
def config(tmp_path: Path) -> Path:
    made = deployment(tmp_path)
    add(made, "first")
    return made


@pytest.fixture
def saved(config: Path, tmp_path: Path) -> Path:
    file = tmp_path / "backup.db"
    result = spotweave("backup", "--config", config, "--to", file)
    out(result)
    assert "store.db.key" in result.stderr
    return file


def test_what_was_saved_comes_back_and_what_was_is_kept(config: Path, saved: Path, tmp_path: Path) -> None:
    add(config, "second")
    result = restore(config, saved)
    out(result)
    assert names(config) == ["first"]
    (kept,) = (tmp_path / "state").glob("store.db.replaced-*")
    assert str(kept) in result.stderr
    with sqlite3.connect(kept) as opened:
        assert opened.execute("SELECT count(*) FROM tokens").fetchone() == (2,)
    opened.close()
    assert os.stat(tmp_path / "state" / "store.db").st_mode & 0o777 == 0o600
    assert not list((tmp_path / "state").glob(".*restoring*"))


def test_a_backup_but_no_restore_works_beside_a_service(config: Path, saved: Path, tmp_path: Path) -> None:
    with open_store(DeploymentConfig.load(config), 0.0) as store:
        lead = store.lead()
        second = tmp_path / "second.db"
        assert spotweave("backup", "--config", config, "--to", second).exit_code == 0
        assert "a scheduler works with the database" in refusal(restore(config, saved))
        lead.release()
    assert names(config) == ["first"]


def lose(state: Path) -> None:
    """Killed between the two renames of a restore, say."""
    (state / "store.db").rename(state / "elsewhere")
    (state / "store.db-wal").write_bytes(b"of another database" * 100)


def damage(state: Path) -> None:
    (state / "store.db").write_bytes(b"nothing of value" * 512)


@pytest.mark.parametrize("harm", [lose, damage])
def test_a_damaged_database_and_one_lost_beside_stale_files_can_be_replaced(
    config: Path, saved: Path, tmp_path: Path, harm: Callable[[Path], None]
) -> None:
    harm(tmp_path / "state")
    assert restore(config, saved).exit_code == 0
    assert names(config) == ["first"]


def test_a_restore_on_another_machine_needs_the_key(config: Path, saved: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    moved = deployment(other)
    assert "there is no key file" in refusal(restore(moved, saved))
    # A deployment of its own has another key.
    add(moved, "stranger")
    assert "does not belong to the database" in refusal(restore(moved, saved))
    assert names(moved) == ["stranger"]
    shutil.copy(tmp_path / "state" / "store.db.key", other / "state" / "store.db.key")
    assert restore(moved, saved).exit_code == 0
    assert names(moved) == ["first"]


def test_what_is_no_backup_changes_nothing(config: Path, saved: Path, tmp_path: Path) -> None:
    state = tmp_path / "state"
    before = sorted(path.name for path in state.iterdir())
    empty, text, other = tmp_path / "empty", tmp_path / "text", tmp_path / "other.db"
    empty.touch()
    text.write_text("hello " * 1000)
    sqlite3.connect(other).execute("CREATE TABLE t (x)").connection.close()
    for file in (empty, text, other):
        assert "is no backup" in refusal(restore(config, file))
    assert names(config) == ["first"]
    assert sorted(path.name for path in state.iterdir()) == before
    assert "exists already" in refusal(spotweave("backup", "--config", config, "--to", saved))


# `spotweave serve` as a process, and everything that keeps it from starting.


LIU2022 = min((ROOT / "checkpoints" / "liu2022").rglob("*.pt"))
OTHER_CLUSTERS = f"{LIU2022} was trained for +env=multicluster, not for +env=multicloud"
JOB = "name: hello\nwork: {kind: flower, app: app, rounds: 1, clients: [{name: a}]}\nresources: {vcpus: 1}\n"


def kinds(config: Path) -> list[str]:
    """Of the events of a deployment."""
    with open_store(DeploymentConfig.load(config), 0.0) as store:
        return [event.kind for event in store.events.latest(100)]


def serve(config: Path, *options: str) -> str:
    return refusal(spotweave("serve", "--config", config, *options, env=NO_JAVA))


@pytest.mark.real
def test_it_serves_until_it_is_told_to_end_and_another_takes_over(tmp_path: Path) -> None:
    config = deployment(tmp_path)
    with served(config, "--dry-run") as first:
        assert first.line.startswith("serving on http://127.0.0.1:")
        assert "policy cheapest, dry-run, 2 offers" in first.line
        assert httpx.get(f"{first.url}/healthz", timeout=60).json() == {"status": "ok"}
        assert "<html" in httpx.get(f"{first.url}/", timeout=60).text
        wait_until(lambda: httpx.get(f"{first.url}/readyz", timeout=60).status_code == 200)
        assert "another scheduler works with the database" in serve(config)
        shutil.copytree(ROOT / "examples" / "federated_mnist", tmp_path / "app")
        (tmp_path / "job.yaml").write_text(JOB)
        job_id = out(spotweave("submit", tmp_path / "job.yaml", "--server", first.url)).strip()
        wait_until(lambda: "task.decided" in kinds(config))
        # Killed, it leaves everything to the next one.
        first.end(signal.SIGKILL)
    with served(config, "--dry-run") as second:
        (job,) = json.loads(spotweave("jobs", "--server", second.url, "--json").stdout)
        assert job["job_id"] == job_id
        assert spotweave("cancel", job_id, "--server", second.url).exit_code == 0
        (tmp_path / "hello.py").write_text("print('hello')\n")
        spark = tmp_path / "spark.yaml"
        spark.write_text("name: hello\nwork: {kind: spark-batch, script: hello.py}\n")
        line = refusal(spotweave("submit", spark, "--server", second.url))
        assert "Spark jobs need Java 17 or newer" in line
        assert "apt install openjdk-17-jre-headless" in line
        code, errors = second.end()
        assert code == 0, errors
        told = [line for line in errors.splitlines() if not line.startswith("{")]
        assert "ending: what runs goes on, and the next serve takes it up" in told
        assert [line.startswith("warning: Spark jobs need Java") for line in told].count(True) == 1
        # All else on stderr is JSON, one line each.
        assert len(told) == 2
        assert all(json.loads(line)["level"] for line in errors.splitlines() if line.startswith("{"))
    assert kinds(config)[-1] == "service.ended"
    assert not [kind for kind in kinds(config) if kind.startswith("instance.")], "it was a dry run"


@pytest.mark.real
def test_with_tokens_it_says_how_to_make_the_first_one(tmp_path: Path) -> None:
    config = deployment(tmp_path, http={"port": 0})
    with served(config) as service:
        assert "access token" in refusal(spotweave("jobs", "--server", service.url))
        # The operator makes it next to the service that runs.
        token = add(config, "me", "admin")
        env = {"SPOTWEAVE_TOKEN": token}
        assert spotweave("jobs", "--server", service.url, env=env).exit_code == 0
        # The second signal of a person who cannot wait.
        service.process.send_signal(signal.SIGINT)
        code, errors = service.end(signal.SIGINT)
        assert code in (0, 130), errors
        assert f"spotweave token create --config {config} --role admin --name NAME" in errors
        assert token not in errors


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"polciy": {}}, "deployment.yaml: polciy: unknown key"),
        ({"http": {"port": 70000}}, "http.port"),
        ({"providers": {"local": "gone.yaml"}}, "cannot read"),
        ({"policy": {"market": "nope"}}, "no checkpoint at nope"),
        ({"policy": {"market": str(LIU2022)}}, OTHER_CLUSTERS),
        ({"policy": {"market": "cheapest", "weights": [1.0]}}, "has no value components"),
        ({"state": "/proc/here"}, "cannot write to the state folder /proc/here"),
        ({"state": "/etc/hostname"}, "cannot write to the state folder /etc/hostname"),
        ({"store": "mysql://x"}, "begins with 'mysql'"),
        ({"http": {"host": "0.0.0.0"}}, "refusing to listen on 0.0.0.0"),
        ({"http": {"tls": {"certificate": "x.pem", "key": "y.pem"}}}, "cannot read the TLS certificate"),
        ({"http": {"tls": {"certificate": "x.pem"}}}, "http.tls.key"),
    ],
)
def test_what_cannot_be_served_is_one_line_and_starts_nothing(
    tmp_path: Path, changes: dict[str, object], message: str
) -> None:
    assert message in serve(deployment(tmp_path, **changes))
    assert not list(tmp_path.glob("state/spark/*"))


def test_for_a_checkpoint_that_is_damaged_or_diverged_its_rule_decides_and_says_so(tmp_path: Path) -> None:
    content = bytearray((ROOT / "checkpoints" / "spotweave" / "policy.pt").read_bytes())
    policy = tmp_path / "policy.pt"
    write_policy(policy, bytes(content))
    config = deployment(tmp_path, policy=str(policy))
    # In the middle of the file are weights: one bit of one makes another policy of it.
    content[len(content) // 2] ^= 1
    policy.write_bytes(content)
    checked = spotweave("check", "--config", config)
    assert checked.exit_code == 2
    damaged = f"{policy} is damaged or was replaced: its SHA-256 is not the one in policy.pt.sha256"
    assert f"error    policies: {damaged}" in checked.stdout
    loaded = DeploymentConfig.load(config)
    with closing(Service(loaded)) as service:
        (event,) = [one for one in service.store.events.latest(100) if one.kind == "policy.unusable"]
        assert event.data["reason"].startswith(damaged)
        (reason,) = load_policies(loaded, 2, strict=False).unusable
        assert reason.startswith(damaged)
    content[len(content) // 2] ^= 1
    policy.write_bytes(content)
    state = load_policy_state(policy)
    next(iter(state["worlds"]["multicloud"]["network"].values())).view(-1)[0] = float("nan")
    save_policy_state(policy, state)
    policies = load_policies(loaded, 2, strict=False)
    assert policies.decides.policy.name == "expected_cost+round_cost"
    assert f"{policy} holds weights that are not finite numbers" in policies.unusable[0]


def test_a_port_in_use_is_one_line_and_starts_nothing(tmp_path: Path) -> None:
    with bind("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        config = deployment(tmp_path, http={"port": port, "tokens": False})
        assert f"port {port} on 127.0.0.1 is in use" in serve(config)
    assert not (tmp_path / "state" / "spark").exists()


def test_check_tells_all_that_is_wrong_at_once_and_changes_nothing(tmp_path: Path) -> None:
    def checked(**changes: object) -> tuple[int, list[str]]:
        result = spotweave("check", "--config", deployment(tmp_path, **changes), env=NO_JAVA)
        return result.exit_code, result.stdout.splitlines()

    code, lines = checked()
    assert code == 0, lines
    told = "\n".join(lines)
    kept_apart = [line for line in lines if line.startswith("warning  sandbox: ")]
    # Where jobs are kept apart, their code could ask the service itself; the rest depends on the machine.
    apart = "sandbox: none: jobs have all rights of the scheduler" not in told
    assert any("http.tokens is false" in line for line in kept_apart) == apart
    root = "sandbox: bubblewrap" in told and os.geteuid() == 0
    assert any("running as root" in line for line in kept_apart) == root
    others = [line.split()[0] for line in lines if line not in kept_apart]
    assert others == ["ok"] * 9 + ["warning"]
    assert not (tmp_path / "state").exists()
    _, lines = checked(policy={"market": "multicloud"}, http={"tokens": False, "connections": 1_000_000})
    for warning in ("policies: multicloud decides among 2 rented offers", "connections: this user may open "):
        assert [line for line in lines if line.startswith(f"warning  {warning}")]
    http = {"host": "0.0.0.0", "tokens": True}
    code, lines = checked(state="/etc/hostname", policy={"market": "nope"}, http=http)
    assert code == 2
    errors = [line.split()[1] for line in lines if line.startswith("error")]
    assert errors == ["state:", "policies:", "http:"]


def test_the_container_serves_what_check_accepts_to_this_machine_alone(tmp_path: Path) -> None:
    services = yaml.safe_load((ROOT / "compose.yaml").read_text())["services"]
    scheduler, image = services["scheduler"], (ROOT / "Dockerfile").read_text()
    entry, command = (
        json.loads(line) for line in re.findall(r"^(?:ENTRYPOINT|CMD) (\[.*)$", image, re.MULTILINE)
    )
    assert [*entry, *command[:2]] == ["spotweave", "serve", "--config"]
    assert re.search(r"^USER spotweave$", image, re.MULTILINE)
    mounts = [volume.split(":") for volume in scheduler["volumes"]]
    assert {Path(to).parent for _, to, *how in mounts if how} == {Path(command[2]).parent}
    for source, to, *how in mounts:
        if how:
            shutil.copy(ROOT / source, tmp_path / Path(to).name)
    file = tmp_path / Path(command[2]).name
    content = yaml.safe_load(file.read_text())
    assert content["state"].startswith(f"{mounts[-1][1]}/")
    assert content.pop("store").startswith("postgresql://spotweave@store/")
    assert services["store"]["environment"]["POSTGRES_USER"] == "spotweave"
    changed = {"state": str(tmp_path / "state"), "runners": {"trust_submitters": True}}
    file.write_text(yaml.safe_dump({**content, **changed}))
    checked = out(spotweave("check", "--config", file))
    assert "port 8421 on 0.0.0.0 (other machines too), with tokens" in checked
    assert scheduler["ports"] == ["127.0.0.1:8421:8421"]


def test_nothing_is_served_where_jobs_would_be_operators_unless_that_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = serve(deployment(tmp_path, runners={"sandbox": "none"}))
    assert "a submitter of this deployment would be its operator" in line
    # Without bubblewrap, setpriv and all others:
    monkeypatch.setattr("spotweave.deploy.security.sandbox.shutil.which", lambda name, **_: None)
    line = serve(deployment(tmp_path, runners={}))
    assert "install bubblewrap" in line
    assert "runners.trust_submitters: true" in line
    assert not list(tmp_path.glob("state/spark/*"))
    trusting = deployment(tmp_path, runners={"trust_submitters": True})
    checked = out(spotweave("check", "--config", trusting))
    assert "ok       sandbox: none: jobs have all rights of the scheduler" in checked


def test_check_tells_of_a_database_of_a_newer_version(tmp_path: Path) -> None:
    config = deployment(tmp_path)
    out(spotweave("token", "list", "--config", config))
    assert "version" in spotweave("check", "--config", config).stdout
    with sqlite3.connect(tmp_path / "state" / "store.db") as opened:
        opened.execute("UPDATE schema_version SET version_num = '9999'")
    opened.close()
    result = spotweave("check", "--config", config)
    assert result.exit_code == 2
    assert "newer than this program's" in result.stdout
