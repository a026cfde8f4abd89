"""Checkpoints: the same choices after loading, and one clear line for whatever does not fit."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from spotweave.agents.networks import ValuePolicy
from spotweave.agents.stored import CheckpointError, digest_file, load_policy_state
from spotweave.envs.simulation.world import WorldSpec
from spotweave.training.checkpoint import (
    load_policy,
    save_policy,
    save_policy_state,
    save_state,
    write_policy,
)
from tests.agents.inputs import random_batch, random_input, small_network, small_settings
from tests.training.toy import ToyWorld

SPEC = ToyWorld(1).spec
WEIGHTS = (1.0, 0.25)
SMALL = {"lstm_size": 4, "shared_size": 16, "head_size": 8, "hidden_sizes": [16, 8]}


def fitted_policy(kind: str, spec: WorldSpec = SPEC) -> tuple[ValuePolicy, dict[str, Any]]:
    small = {**SMALL, "name": f"my_{kind}"}
    agent = dataclasses.asdict(small_settings(kind, **small))
    torch.manual_seed(3)
    network = small_network(kind, spec.n_clusters, spec.scales, WEIGHTS, **small)
    network.fit_scalers(random_input(50, 2, spec.n_clusters, seed=9))
    return ValuePolicy(network, WEIGHTS if network.n_outputs > 1 else (1.0,), agent["name"]), agent


@pytest.fixture
def saved(tmp_path: Path, request: pytest.FixtureRequest) -> tuple[Path, ValuePolicy]:
    kind = getattr(request, "param", "rl_lsfc")
    policy, agent = fitted_policy(kind)
    path = tmp_path / "policy.pt"
    save_policy(path, policy, agent, SPEC, SPEC.scales, WEIGHTS, {"command": "python …", "seed": 3})
    return path, policy


@contextlib.contextmanager
def refused(message: str) -> Iterator[pytest.ExceptionInfo[CheckpointError]]:
    """What is loaded inside is refused in one line."""
    with pytest.raises(CheckpointError, match=message) as caught:
        yield caught
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("saved", ["rl_lsfc", "rl_fc"], indirect=True)
def test_a_loaded_policy_chooses_the_same(saved: tuple[Path, ValuePolicy]) -> None:
    path, policy = saved
    batch = random_batch(200, 2, SPEC.n_clusters, seed=1)
    lanes = np.arange(200)
    for place in (path, path.parent):  # the file, or the run directory that holds it
        loaded = load_policy(place, SPEC)
        assert isinstance(loaded, ValuePolicy)
        assert loaded.name == policy.name
        assert np.array_equal(loaded.act_batch(batch, lanes), policy.act_batch(batch, lanes))
        assert torch.equal(loaded.component_values(batch), policy.component_values(batch))


def test_the_card_and_plain_settings_are_in_the_file(saved: tuple[Path, ValuePolicy]) -> None:
    state = load_policy_state(saved[0])
    assert state["training"] == {"command": "python …", "seed": 3}
    assert state["world"]["components"] == ["own", "mutual"]
    assert state["weights"] == list(WEIGHTS)
    assert state["agent"]["lstm_size"] == 4


def test_other_weights_are_used_without_retraining(saved: tuple[Path, ValuePolicy]) -> None:
    path, policy = saved
    batch = random_batch(200, 2, SPEC.n_clusters, seed=1)
    loaded = load_policy(path, SPEC, weights=(0.0, 1.0))
    assert not np.array_equal(
        loaded.act_batch(batch, np.arange(200)), policy.act_batch(batch, np.arange(200))
    )
    policy.set_weights((0.0, 1.0))
    assert np.array_equal(loaded.act_batch(batch, np.arange(200)), policy.act_batch(batch, np.arange(200)))


@pytest.mark.parametrize("weights", [(1.0, float("nan")), (1.0,), (1.0, 2.0, 3.0)])
def test_wrong_weights_are_refused(saved: tuple[Path, ValuePolicy], weights: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match=r"^[^\n]*value weights[^\n]*$"):
        load_policy(saved[0], SPEC, weights)


@pytest.mark.parametrize("saved", ["rl_fc"], indirect=True)
def test_a_scalarised_value_cannot_be_weighted_anew(saved: tuple[Path, ValuePolicy]) -> None:
    with refused("cannot be changed without retraining"):
        load_policy(saved[0], SPEC, weights=(0.5, 0.5))
    load_policy(saved[0], SPEC, weights=WEIGHTS)  # those it was trained with


@pytest.mark.parametrize(
    "changes", [{"name": "multicloud"}, {"components": ("own_misses", "delay")}], ids=["name", "components"]
)
def test_another_environment_is_refused(saved: tuple[Path, ValuePolicy], changes: dict[str, Any]) -> None:
    other = dataclasses.replace(SPEC, **changes)
    with refused(rf"was trained for \+env=toy, not for \+env={other.name}"):
        load_policy(saved[0], other)


@pytest.mark.parametrize("saved", ["rl_lsfc", "rl_fc"], indirect=True)
def test_another_number_of_clusters_is_refused(saved: tuple[Path, ValuePolicy]) -> None:
    with refused("was trained for 3 clusters, this world has 7"):
        load_policy(saved[0], ToyWorld(1, n_clusters=7).spec)


class TestFilesThatAreNoCheckpoints:
    @pytest.mark.parametrize(("place", "missing"), [("gone.pt", r"gone\.pt: give"), ("", r"policy\.pt")])
    def test_missing(self, tmp_path: Path, place: str, missing: str) -> None:
        with refused(f"no checkpoint at .*{missing}"):
            load_policy(tmp_path / place, SPEC)

    @pytest.mark.parametrize("keep", [0, 10, 1000, -1])
    def test_cut_short(self, saved: tuple[Path, ValuePolicy], keep: int) -> None:
        path = saved[0]
        write_policy(path, path.read_bytes()[:keep])
        with refused("is not a readable checkpoint"):
            load_policy(path, SPEC)

    @pytest.mark.parametrize(
        ("content", "message"),
        [
            ("seed: 3\n", "is not a readable checkpoint"),
            ({"model": {}}, "is not a Spotweave checkpoint: it lacks the format"),
            ({"format": 99}, "has checkpoint format 99, this version reads format 1"),
        ],
        ids=["a text", "another program's", "another format"],
    )
    def test_of_something_else(self, tmp_path: Path, content: Any, message: str) -> None:
        file = tmp_path / "policy.pt"
        file.write_text(content) if isinstance(content, str) else torch.save(content, file)
        with refused(message):
            load_policy(tmp_path, SPEC)

    def test_code_in_a_file_is_not_run(self, tmp_path: Path) -> None:
        class Trap:
            def __reduce__(self) -> tuple[Any, ...]:
                return (Path.touch, (tmp_path / "sprung",))

        torch.save({"format": 1, "trap": Trap()}, tmp_path / "policy.pt")
        with refused("is not a readable checkpoint"):
            load_policy(tmp_path, SPEC)
        assert not (tmp_path / "sprung").exists()

    def test_a_training_state(self, tmp_path: Path) -> None:
        save_state(tmp_path / "state.pt", {"format": 1, "trainer": {}})
        with refused(r"not a readable .*: give the path of a policy\.pt file"):
            load_policy(tmp_path / "state.pt", SPEC)

    def test_weights_of_another_network(self, saved: tuple[Path, ValuePolicy]) -> None:
        state = load_policy_state(saved[0])
        state["agent"]["shared_size"] = 32
        save_policy_state(saved[0], state)
        with refused("weights that its own settings do not fit"):
            load_policy(saved[0], SPEC)


class TestFilesThatAreNotTheOneThatWasWritten:
    def test_any_flipped_byte(self, saved: tuple[Path, ValuePolicy]) -> None:
        """Also one within the weights, with which the file is still one that can be read."""
        path, content = saved[0], saved[0].read_bytes()
        for place in range(0, len(content), max(1, len(content) // 50)):
            flipped = bytearray(content)
            flipped[place] ^= 0x10
            path.write_bytes(flipped)
            with refused("is damaged or was replaced: its SHA-256"):
                load_policy(path, SPEC)
        path.write_bytes(content)
        load_policy(path, SPEC)

    def test_without_a_digest(self, saved: tuple[Path, ValuePolicy]) -> None:
        path = saved[0]
        digest_file(path).unlink()
        with refused("has no digest: if you trust the file, run: cd ") as caught:
            load_policy(path, SPEC)
        subprocess.run(str(caught.value).split("run: ")[1], shell=True, check=True)
        load_policy(path, SPEC)

    @pytest.mark.parametrize("wrong", ["", "no digest\n", "\xff\xfe"])
    def test_a_digest_that_is_none(self, saved: tuple[Path, ValuePolicy], wrong: str) -> None:
        digest_file(saved[0]).write_text(wrong, encoding="latin-1")
        with refused("is damaged or was replaced"):
            load_policy(saved[0], SPEC)

    @pytest.mark.parametrize("value", [float("nan"), float("inf")])
    @pytest.mark.parametrize("saved", ["rl_lsfc", "rl_fc"], indirect=True)
    def test_weights_that_are_not_finite(self, saved: tuple[Path, ValuePolicy], value: float) -> None:
        state = load_policy_state(saved[0])
        name = list(state["network"])[-1]
        state["network"][name].view(-1)[0] = value
        save_policy_state(saved[0], state)
        with refused(rf"not finite numbers \({name}\)"):
            load_policy(saved[0], SPEC)

    def test_a_value_weight_that_is_not_finite(self, saved: tuple[Path, ValuePolicy]) -> None:
        state = load_policy_state(saved[0])
        state["weights"][0] = float("nan")
        save_policy_state(saved[0], state)
        with refused(r"not finite numbers \(weights\)"):
            load_policy(saved[0], SPEC)

    @pytest.mark.parametrize("moved", [0, 1, 2, 3])
    def test_a_writer_that_is_killed_anywhere_leaves_a_policy_with_its_digest(
        self, saved: tuple[Path, ValuePolicy], monkeypatch: pytest.MonkeyPatch, moved: int
    ) -> None:
        """Killed before it has moved this many files to their places, of three."""
        path, before = saved[0], saved[0].read_bytes()
        replace, left = os.replace, iter(range(moved))

        def killed(source: Path, target: Path) -> None:
            if next(left, None) is None:
                raise KeyboardInterrupt
            replace(source, target)

        state = load_policy_state(path)
        state["training"] = {"command": "another"}
        monkeypatch.setattr(os, "replace", killed)
        with contextlib.suppress(KeyboardInterrupt):
            save_policy_state(path, state)
        monkeypatch.undo()
        load_policy(path, SPEC)
        assert (path.read_bytes() == before) == (moved < 2)
        save_policy_state(path, state)
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        assert digest_file(path).read_text() == f"{digest}  policy.pt\n"
