"""The commands compare and evaluate: what they write, and how they refuse."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from omegaconf import OmegaConf

from spotweave.agents.rules import RULES, make_rule
from spotweave.envs.environments import ENVIRONMENTS, Environment
from spotweave.envs.simulation.world import BatchWorld
from spotweave.training.config import UsageError
from spotweave.training.evaluation import comparison
from spotweave.training.evaluation.comparison import compare, compare_after_training, evaluate, read_config
from spotweave.training.evaluation.episodes import SuitePlayer, contestants, load_checkpoints
from tests.training.commands import ROOT, Command
from tests.training.evaluation.test_report import small_timeline
from tests.training.fake_world import Clairvoyant, FakeWorld


@dataclass
class FakeConfig:
    """A world without settings."""


class RecordingFakeWorld(FakeWorld):
    def timeline(self, lane: int) -> Any:
        return dataclasses.replace(small_timeline(), time_unit="slice")


def build(config: FakeConfig, lanes: int, record: bool = False) -> BatchWorld:
    return RecordingFakeWorld(lanes) if record else FakeWorld(lanes)


@pytest.fixture(autouse=True)
def _fake_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = Environment("fake", FakeConfig, build, "rl_lsfc", rules=("random", "maf", "rr"))
    monkeypatch.setitem(ENVIRONMENTS, "fake", entry)


def values(**changes: object) -> dict[str, Any]:
    return {"env": {"name": "fake"}, "suite": "validation", "episodes": 6, "lanes": 4, **changes}


@pytest.mark.real
def test_compare_writes_everything_and_can_be_repeated_from_its_config(tmp_path: Path) -> None:
    assert compare(values(policies=["random", "maf", "rr"]), str(tmp_path / "a")) == 0
    written = sorted(path.name for path in (tmp_path / "a").iterdir())
    assert written == ["config.yaml", "episodes.csv", "report.html", "summary.json"]
    summary = json.loads((tmp_path / "a" / "summary.json").read_text())
    assert summary["reference"] == "random"
    assert set(summary) >= {"spotweave", "commit", "suite", "policies", "paired"}
    # Fewer lanes: no number may depend on them.
    again = {**read_config(str(tmp_path / "a" / "config.yaml")), "lanes": 1}
    assert compare(again, str(tmp_path / "b")) == 0
    repeated = json.loads((tmp_path / "b" / "summary.json").read_text())
    for run in (*summary["policies"].values(), *repeated["policies"].values()):
        del run["decision_latency"]
    assert repeated == summary
    csv = [(tmp_path / name / "episodes.csv").read_text() for name in "ab"]
    assert csv[0] == csv[1]


@pytest.mark.real
def test_default_policies_are_the_worlds_rules_with_maf_as_the_reference(tmp_path: Path) -> None:
    compare(values(), str(tmp_path))
    config = yaml.safe_load((tmp_path / "config.yaml").read_text())
    assert config["policies"] == ["maf", "random", "rr"]
    assert config["env"] == {"name": "fake"}
    assert config["episodes"] == 6


def test_the_table_is_printed_with_the_verdict(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    compare(values(), str(tmp_path))
    printed = capsys.readouterr().out
    assert "maf −" in printed
    assert "In score, over 6 shared episodes, maf is" in printed
    assert f"report: {tmp_path / 'report.html'}" in printed


def test_evaluate_prints_and_writes_only_when_asked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert evaluate(values(policies=["maf"]), None) == 0
    assert list(tmp_path.iterdir()) == []
    assert "maf on suite validation of fake" in capsys.readouterr().out
    assert evaluate(values(policies=["maf"]), str(tmp_path / "out")) == 0
    written = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert written == ["config.yaml", "episodes.csv", "evaluation.json"]
    report = json.loads((tmp_path / "out" / "evaluation.json").read_text())
    assert list(report["policies"]) == ["maf"]
    assert report["paired"] == {}


def test_comparison_after_training_goes_beside_the_run(tmp_path: Path) -> None:
    (tmp_path / "policy.pt").write_bytes(b"weights")
    player, rules = SuitePlayer([FakeWorld], 3), [make_rule("random")]
    measured = compare_after_training(player, None, Clairvoyant(), rules, 5, tmp_path, values())
    assert measured.paired["random"]["score"].verdict == "better"
    summary = json.loads((tmp_path / "test" / "summary.json").read_text())
    assert summary["suite"]["name"] == "test"
    assert summary["checkpoints"]["clairvoyant"]["path"] == str(tmp_path / "policy.pt")
    assert len(summary["checkpoints"]["clairvoyant"]["sha256"]) == 64


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"policies": ["maf"]}, "at least 2 policies"),
        ({"policies": ["maf", "random", "maf"]}, "'maf' is named twice"),
        ({"episodes": 1}, "at least 2 episodes, got episodes=1"),
        ({"lanes": 0}, "lanes is 0"),
        ({"episode": 3}, "unknown key comparison.episode: did you mean 'episodes'"),
        ({"env": {"name": "fkae"}}, "env.name is 'fkae'"),
    ],
)
def test_compare_refuses_in_one_line(tmp_path: Path, changes: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message) as refused:
        compare(values(**changes), str(tmp_path))
    assert "\n" not in str(refused.value)


def test_an_unwritable_directory_is_found_before_anything_is_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("x")
    monkeypatch.setattr(comparison, "compare_policies", lambda *_: pytest.fail("ran"))
    with pytest.raises(ValueError, match="cannot write into"):
        compare(values(), str(tmp_path / "file"))


def test_evaluate_wants_exactly_one_policy() -> None:
    with pytest.raises(UsageError, match="name the policy to evaluate"):
        evaluate(values(), None)
    for several in ({"policies": ["maf", "rr"]}, {"checkpoint": ["a.pt", "b.pt"]}):
        with pytest.raises(UsageError, match="one policy is evaluated at a time"):
            evaluate(values(**several), None)


def test_contestants_follow_the_names() -> None:
    mine = Clairvoyant()
    loaded = {"clairvoyant": (mine, "run/policy.pt")}
    spec = FakeWorld(1).spec
    chosen = contestants(["maf", "clairvoyant"], loaded, (), spec)
    assert [policy.name for policy in chosen] == ["maf", "clairvoyant"]
    assert chosen[1] is mine
    every = contestants(None, loaded, ("random", "maf"), spec)
    assert [policy.name for policy in every] == ["clairvoyant", "random", "maf"]
    with pytest.raises(UsageError, match=r"run/policy.pt holds 'clairvoyant', which policies= does not name"):
        contestants(["maf"], loaded, (), spec)
    with pytest.raises(ValueError, match="did you mean 'clairvoyant'"):
        contestants(["clairvoyent", "clairvoyant"], loaded, (), spec)


def test_checkpoints_by_path_list_and_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spotweave.training.evaluation.episodes.load_policy", lambda *_: Clairvoyant())
    monkeypatch.setattr("spotweave.training.evaluation.episodes.policy_file", Path)
    spec = FakeWorld(1).spec
    assert list(load_checkpoints(None, spec, None, "cpu")) == []
    assert list(load_checkpoints("a.pt", spec, None, "cpu")) == ["clairvoyant"]
    named = load_checkpoints({"seed0": "a.pt", "seed1": "b.pt"}, spec, None, "cpu")
    assert [(policy.name, path) for policy, path in named.values()] == [("seed0", "a.pt"), ("seed1", "b.pt")]
    with pytest.raises(UsageError, match=r"b.pt holds 'clairvoyant', the name of another checkpoint"):
        load_checkpoints(["a.pt", "b.pt"], spec, None, "cpu")
    with pytest.raises(UsageError, match="the name of a rule"):
        load_checkpoints({next(iter(RULES)): "a.pt"}, spec, None, "cpu")


def test_a_file_that_is_no_configuration_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no configuration at"):
        read_config(str(tmp_path / "missing.yaml"))
    OmegaConf.save({"a": 1}, tmp_path / "other.yaml")
    with pytest.raises(UsageError, match="it has no env"):
        read_config(str(tmp_path / "other.yaml"))


# compare and evaluate as they are typed: in a process of their own once, and in this one for the rest.


@pytest.mark.real
def test_the_commands_end_to_end(command: Command, tmp_path: Path) -> None:
    small = ("+env=multicluster", "env.n_jobs=40", "episodes=3", "suite=validation")
    words = (*small, "policies=[tuned,maf,random]", "out=first")
    first = subprocess.run(
        [sys.executable, "-W", "error", ROOT / "training" / "compare.py", *words],
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert first.returncode == 0, first.stderr
    assert "tuned −" in first.stdout
    assert first.stderr == ""
    again = replace(command, name="compare")("config=first/config.yaml", "out=again")
    assert again.code == 0, again.err
    assert (tmp_path / "first/episodes.csv").read_text() == (tmp_path / "again/episodes.csv").read_text()
    assert "data:image/png" in (tmp_path / "first/report.html").read_text()
    one = replace(command, name="evaluate")(*small, "policy=maf", "out=one")
    assert one.code == 0, one.err
    rows = (tmp_path / "first/episodes.csv").read_text().splitlines()
    expected = [row for row in rows if row.startswith(("policy,", "maf,"))]
    assert (tmp_path / "one/episodes.csv").read_text().splitlines() == expected


def test_a_mistake_is_one_line_and_exit_code_2(command: Command) -> None:
    told = replace(command, name="compare")("config=first.yaml", "episodes=3")
    assert "episodes=3 was given with config=" in told.mistake
    assert told.out == ""
