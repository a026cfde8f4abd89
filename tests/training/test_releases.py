"""Released policies: found by name, made from a finished run."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from agents import stored
from agents.mtdqn.forward import n_columns
from agents.mtdqn.markets import MarketView
from agents.mtdqn.network import MTDQNNetwork
from agents.mtdqn.policy import MTDQNPolicy
from agents.stored import CheckpointError, policy_file, released_names
from tests.training.test_checkpoint import SPEC, WEIGHTS, fitted_policy
from training import releases
from training.checkpoint import load_policy, save_policy
from training.evaluation.playing import load_checkpoints
from training.releases import join, release


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A finished run."""
    directory = tmp_path / "run"
    directory.mkdir()
    policy, agent = fitted_policy("rl_fc")
    facts = {
        "command": "python training/train.py +env=toy env.size=2 env.loads=[1,2] seed=3",
        "seed": 3,
        "commit": "abc",
        "episodes": 40,
        "validation": {"objective": -3.5},
        "validation_guide": {"objective": -7.0},
        "guide": "myopic",
    }
    save_policy(directory / "policy.pt", policy, agent, SPEC, SPEC.scales, WEIGHTS, facts)
    (directory / "done.json").write_text("{}")
    return directory


def test_a_release_is_the_same_policy_with_a_card(run: Path, tmp_path: Path) -> None:
    folder = release([run], "toy/mine", "TMDL 61.70", tmp_path / "checkpoints")
    assert folder == tmp_path / "checkpoints" / "toy" / "mine"
    assert (folder / "policy.pt").read_bytes() == (run / "policy.pt").read_bytes()
    card = (folder / "README.md").read_text()
    digest = hashlib.sha256((run / "policy.pt").read_bytes()).hexdigest()
    command = "python training/train.py +env=toy env.size=2 env.loads=[1,2] seed=3"
    use = f"training/compare.py +env={SPEC.name} env.size=2 checkpoint=toy/mine"
    for word in (digest, command, use, "TMDL 61.70", "Apache-2.0", "-3.50"):
        assert word in card
    assert load_policy(folder, SPEC).name == "my_rl_fc"
    assert released_names(tmp_path / "checkpoints") == ["toy/mine"]


@pytest.mark.parametrize("name", ["", "/etc/mine", "../mine"])
def test_a_name_stays_below_checkpoints(name: str, run: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="expected one below checkpoints/"):
        release([run], name, "", tmp_path / "checkpoints")


def test_an_unfinished_run_is_not_released(run: Path, tmp_path: Path) -> None:
    (run / "done.json").unlink()
    with pytest.raises(ValueError, match="is not a finished run"):
        release([run], "toy/mine", "", tmp_path)


def test_a_large_policy_is_not_released(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(releases, "MAX_BYTES", 100)
    with pytest.raises(ValueError, match="a release must stay below"):
        release([run], "toy/mine", "", tmp_path / "checkpoints")
    assert not (tmp_path / "checkpoints").exists()


def test_a_path_wins_over_a_name(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "checkpoints"
    release([run], "toy/mine", "", root)
    monkeypatch.chdir(tmp_path)
    assert policy_file("toy/mine", root) == root / "toy" / "mine" / "policy.pt"
    (tmp_path / "toy" / "mine").mkdir(parents=True)
    (tmp_path / "toy" / "mine" / "policy.pt").write_bytes(b"another")
    assert policy_file("toy/mine", root) == Path("toy/mine/policy.pt")


def test_an_unknown_name_lists_what_is_released(run: Path, tmp_path: Path) -> None:
    release([run], "toy/mine", "", tmp_path / "checkpoints")
    with pytest.raises(ValueError, match=r"no checkpoint at toy/yours.*\(toy/mine\)") as refused:
        policy_file("toy/yours", tmp_path / "checkpoints")
    assert "\n" not in str(refused.value)


def test_commands_find_it_by_name(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(releases, "RELEASED", tmp_path / "checkpoints")
    monkeypatch.setattr(stored, "RELEASED", tmp_path / "checkpoints")
    release([run], "toy/mine", "")
    loaded = load_checkpoints("toy/mine", SPEC, None, "cpu")
    assert loaded["my_rl_fc"][1] == "toy/mine"


def test_several_runs_of_mtdqn_are_released_as_their_mean(tmp_path: Path) -> None:
    view = MarketView(lstm=0, own=5, networks=1, mutual=0)
    rng, networks, runs = np.random.default_rng(0), [], []
    settings = {"kind": "mtdqn", "name": "mean", "guide": "expected_cost", "weights": [], "margin": 0.1}
    settings |= {"lstm_size": 0, "own_size": 5, "mutual_size": 0}
    spec = replace(SPEC, components=("own_misses", "mutual_misses", "delay", "money", "owned_hours"))
    for seed in range(3):
        policy = MTDQNPolicy(view, (25.0, 25.0, 0.25, 1.0, 0.36), "mean")
        network = MTDQNNetwork(view.sizes)
        network.set_vector(rng.uniform(0.1, 1.0, policy.network.size).astype(np.float32))
        policy.network.set_vector(network.vector())
        run = tmp_path / f"seed{seed}"
        run.mkdir()
        facts = {"command": "c", "seed": seed, "commit": "abc", "episodes": 4, "guide": "expected_cost"}
        facts |= {"validation": {}, "validation_guide": {}}
        save_policy(run / "policy.pt", policy, settings, spec, (1.0,) * 5, policy.weights, facts)
        (run / "done.json").write_text("{}")
        networks.append(network)
        runs.append(run)
    folder = release(runs, "toy/mean", "", tmp_path / "checkpoints")
    assert "0, 1, 2" in (folder / "README.md").read_text()
    loaded = load_policy(folder, spec)
    assert isinstance(loaded, MTDQNPolicy)
    joined = MTDQNNetwork(loaded.view.sizes)
    joined.set_vector(loaded.network.vector)
    columns = torch.rand(7, n_columns(view.sizes))
    expected = torch.cat([network.own_values(columns) for network in networks])
    torch.testing.assert_close(joined.own_values(columns), expected)


def test_only_mtdqn_is_averaged(run: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="only networks of mtdqn are averaged"):
        release([run, run], "toy/mine", "", tmp_path / "checkpoints")


def test_a_damaged_policy_is_not_released(run: Path, tmp_path: Path) -> None:
    (run / "policy.pt").write_bytes((run / "policy.pt").read_bytes() + b"x")
    with pytest.raises(ValueError, match="is damaged or was replaced"):
        release([run], "toy/mine", "", tmp_path / "checkpoints")
    assert not (tmp_path / "checkpoints").exists()


def test_policies_of_several_environments_make_one_file(run: Path, tmp_path: Path) -> None:
    root = tmp_path / "checkpoints"
    other = tmp_path / "other"
    policy, agent = fitted_policy("rl_fc")
    spec = replace(SPEC, name="other")
    facts = {"guide": "myopic"}
    other.mkdir()
    save_policy(other / "policy.pt", policy, agent, spec, SPEC.scales, WEIGHTS, facts)
    folder = join([str(run), str(other)], "both", "measured", root)
    card = (folder / "README.md").read_text()
    for one in (run, other):
        assert hashlib.sha256((one / "policy.pt").read_bytes()).hexdigest() in card
    assert load_policy(folder, SPEC).name == load_policy(folder, spec).name == "my_rl_fc"
    with pytest.raises(CheckpointError, match=r"holds policies for \+env=toy, other, none for \+env=third"):
        load_policy(folder, replace(SPEC, name="third"))
    for given, message in (
        ([], "policies= is empty"),
        ([str(run), str(run)], r"is of \+env=toy"),
        ([str(folder), str(run)], "holds several policies"),
    ):
        with pytest.raises(ValueError, match=message):
            join(given, "wrong", "", root)
    content = torch.load(folder / "policy.pt", weights_only=True)
    next(iter(content["worlds"]["other"]["network"].values())).view(-1)[0] = float("nan")
    torch.save(content, folder / "policy.pt")
    digest = hashlib.sha256((folder / "policy.pt").read_bytes()).hexdigest()
    (folder / "policy.pt.sha256").write_text(f"{digest}  policy.pt\n")
    with pytest.raises(CheckpointError, match="not finite numbers"):
        load_policy(folder, SPEC)


def test_a_release_of_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="run= is empty"):
        release([], "toy/mine", "", tmp_path)
