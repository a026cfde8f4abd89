"""Released policies: found by name, made from a finished run."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from spotweave.agents import stored
from spotweave.agents.stored import CheckpointError, policy_file, released_names
from spotweave.training import releases
from spotweave.training.checkpoint import load_policy, save_policy
from spotweave.training.evaluation.episodes import load_checkpoints
from spotweave.training.releases import join, release
from tests.training.test_checkpoint import SPEC, WEIGHTS, fitted_policy


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where policies are released."""
    for module in (releases, stored):
        monkeypatch.setattr(module, "RELEASED", tmp_path / "checkpoints")
    return tmp_path / "checkpoints"


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


def test_a_release_is_the_same_policy_with_a_card_and_is_found_by_its_name(run: Path, root: Path) -> None:
    folder = release(run, "toy/mine", "TMDL 61.70")
    assert folder == root / "toy" / "mine"
    assert (folder / "policy.pt").read_bytes() == (run / "policy.pt").read_bytes()
    card = (folder / "README.md").read_text()
    digest = hashlib.sha256((run / "policy.pt").read_bytes()).hexdigest()
    command = "python training/train.py +env=toy env.size=2 env.loads=[1,2] seed=3"
    use = f"training/compare.py +env={SPEC.name} env.size=2 checkpoint=toy/mine"
    for word in (digest, command, use, "TMDL 61.70", "Apache-2.0", "-3.50"):
        assert word in card
    assert load_policy(folder, SPEC).name == "my_rl_fc"
    assert released_names() == ["toy/mine"]
    assert load_checkpoints("toy/mine", SPEC, None, "cpu")["my_rl_fc"][1] == "toy/mine"


@pytest.mark.parametrize("name", ["", "/etc/mine", "../mine"])
def test_a_name_stays_below_checkpoints(name: str, run: Path) -> None:
    with pytest.raises(ValueError, match="expected one below checkpoints/"):
        release(run, name, "")


def test_an_unfinished_run_is_not_released(run: Path) -> None:
    (run / "done.json").unlink()
    with pytest.raises(ValueError, match="is not a finished run"):
        release(run, "toy/mine", "")


def test_a_large_policy_is_not_released(run: Path, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(releases, "MAX_BYTES", 100)
    with pytest.raises(ValueError, match="a release must stay below"):
        release(run, "toy/mine", "")
    assert not root.exists()


def test_a_path_wins_over_a_name(
    run: Path, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    release(run, "toy/mine", "")
    monkeypatch.chdir(tmp_path)
    assert policy_file("toy/mine") == root / "toy" / "mine" / "policy.pt"
    (tmp_path / "toy" / "mine").mkdir(parents=True)
    (tmp_path / "toy" / "mine" / "policy.pt").write_bytes(b"another")
    assert policy_file("toy/mine") == Path("toy/mine/policy.pt")


def test_a_damaged_policy_is_not_released(run: Path, root: Path) -> None:
    (run / "policy.pt").write_bytes((run / "policy.pt").read_bytes() + b"x")
    with pytest.raises(ValueError, match="is damaged or was replaced"):
        release(run, "toy/mine", "")
    assert not root.exists()


@pytest.mark.usefixtures("root")
def test_policies_of_several_environments_make_one_file(run: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    policy, agent = fitted_policy("rl_fc")
    spec = replace(SPEC, name="other")
    facts = {"guide": "myopic"}
    other.mkdir()
    save_policy(other / "policy.pt", policy, agent, spec, SPEC.scales, WEIGHTS, facts)
    folder = join([str(run), str(other)], "both", "measured")
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
            join(given, "wrong", "")
    content = torch.load(folder / "policy.pt", weights_only=True)
    next(iter(content["worlds"]["other"]["network"].values())).view(-1)[0] = float("nan")
    torch.save(content, folder / "policy.pt")
    digest = hashlib.sha256((folder / "policy.pt").read_bytes()).hexdigest()
    (folder / "policy.pt.sha256").write_text(f"{digest}  policy.pt\n")
    with pytest.raises(CheckpointError, match="not finite numbers"):
        load_policy(folder, SPEC)
