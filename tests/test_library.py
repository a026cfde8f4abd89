"""`import spotweave`: what it offers and loads, also beside a user's folders of the same names as ours."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

import spotweave
from spotweave.agents.rules import make_rule
from spotweave.training.adapters.base import FlatWorldEnv
from tests.training.commands import ROOT

TINY: dict[str, Any] = {"n_jobs": 20, "window": 4}
EXAMPLES = sorted((ROOT / "examples" / "library").iterdir())
SMALLER = {
    '"multicloud", flat=True': '"multicluster", flat=True, n_jobs=20, window=4',
    "learn(20_000)": "learn(64)",
    '"MlpPolicy", env, seed=1)': '"MlpPolicy", env, seed=1, **SMALL)',
    "COPIES, STEPS, UPDATES, EPOCHS, BATCH = 4, 256, 20, 4, 256": (
        "COPIES, STEPS, UPDATES, EPOCHS, BATCH = 2, 40, 2, 1, 16"
    ),
    "episodes=10": 'episodes=2, rules=["maf"]',
}
"""What makes an example take seconds."""


def python(source: str, folder: Path, *path: Path) -> subprocess.CompletedProcess[str]:
    """Run a script of a user's, whose folder comes first where Python looks for modules."""
    script = folder / "script.py"
    script.write_text(source)
    return subprocess.run(
        [sys.executable, str(script)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, [*path, ROOT])), "OMP_NUM_THREADS": "1"},
        cwd=folder,
        capture_output=True,
        text=True,
    )


def test_importing_it_loads_nothing_heavy(tmp_path: Path) -> None:
    heavy = [
        "torch",
        "numba",
        "numpy",
        "gymnasium",
        "hydra",
        "rich",
        "pydantic",
        "spotweave.training",
        "spotweave.envs",
        "spotweave.agents",
    ]
    done = python(f"import spotweave, sys; print([m for m in {heavy} if m in sys.modules])", tmp_path)
    assert done.stdout == "[]\n", done.stderr
    ours = {"Choice", "Trained", "compare", "load", "make", "train"}
    assert set(spotweave.__all__) == ours | {"Client", "ServiceError", "UnreachableError"}
    assert all(getattr(spotweave, name).__module__ == "spotweave.api" for name in ours)
    with pytest.raises(AttributeError, match="no attribute 'mak'"):
        spotweave.mak  # noqa: B018 - looking is the test


@pytest.mark.parametrize(
    "source",
    [
        "import gymnasium; env = gymnasium.make('spotweave:spotweave/MultiCluster-v0').spec",
        "import gymnasium, spotweave; env = gymnasium.spec('spotweave/MultiCluster-v0')",
        "import spotweave, gymnasium; env = gymnasium.spec('spotweave/MultiCluster-v0')",
        "import spotweave.envs, gymnasium; env = gymnasium.spec('spotweave/MultiCluster-v0')",
    ],
)
def test_gymnasium_knows_the_environments_in_whatever_order(source: str, tmp_path: Path) -> None:
    done = python(f"{source}; print(env.id)", tmp_path)
    assert done.stdout == "spotweave/MultiCluster-v0\n", done.stderr


def test_a_project_with_folders_of_our_names_imports_its_own_and_uses_the_library(tmp_path: Path) -> None:
    for name in ("envs", "agents", "training", "deploy", "configs", "checkpoints"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("mine = True\n")
    done = python(
        "import envs, agents, training, deploy, configs, checkpoints\n"
        "import spotweave\n"
        "assert envs.mine and agents.mine and training.mine and deploy.mine and configs.mine\n"
        "env = spotweave.make('multicluster', n_jobs=20, window=4)\n"
        "policy = spotweave.load('liu2022/rl_lsfc')\n"
        "found = spotweave.compare(env, {'mine': lambda seen: int(seen['action_mask'].argmax())},"
        " episodes=2, rules=['maf'])\n"
        "print(policy.name, spotweave.Client.__name__, envs.mine)\n",
        tmp_path,
    )
    assert done.stdout.splitlines()[-1:] == ["rl_lsfc Client True"], done.stderr


def test_an_environment_is_made_by_name_or_id_with_settings() -> None:
    by_name = spotweave.make("multicluster", **TINY)
    by_id = spotweave.make("spotweave/MultiCluster-v0", **TINY)
    by_gymnasium = gymnasium.make("spotweave/MultiCluster-v0", config=by_name.spec.kwargs["config"])
    for env in (by_name, by_id, by_gymnasium):
        observation, _ = env.reset(seed=3)
        assert len(observation["jobs"]) == 4
    nested = spotweave.make("anyclusters", clusters=3, world={"n_jobs": 7})
    assert nested.spec is not None
    assert nested.spec.kwargs["config"].world.n_jobs == 7


@pytest.mark.parametrize(
    ("ask", "told"),
    [
        (lambda: spotweave.make("multiclod"), "unknown environment 'multiclod': expected one of multicloud"),
        (lambda: spotweave.make("multicluster", n_job=3), "unknown key .n_job: did you mean 'n_jobs'"),
        (lambda: spotweave.make("multicloud", workload={"jobs": "many"}), "workload.jobs is 'many'"),
        (lambda: spotweave.make("spot", flat=True, render_mode="human"), "a flat environment draws nothing"),
        (lambda: spotweave.load("no/such"), "no checkpoint at no/such"),
        (lambda: spotweave.load("spotweave"), "name one, as in load('spotweave', 'multicloud')"),
        (lambda: spotweave.train("spot", sead=3), "unknown setting sead: expected one of agent"),
        (lambda: spotweave.train("spot", trainer={"episode": 3}), "unknown key trainer.episode"),
        (lambda: spotweave.train(gymnasium.make("CartPole-v1")), "no environment of Spotweave's"),
        (lambda: spotweave.compare("spot", {"mine": 3}), "policy 'mine' is 3: expected a function"),  # type: ignore[dict-item]
        (
            lambda: spotweave.compare("spot", {"on_demand": "on_demand"}, rules=[]),
            "needs at least 2 policies",
        ),
    ],
)
def test_a_mistake_is_one_line(ask: Any, told: str) -> None:
    with pytest.raises(ValueError, match=r"^[^\n]*$") as caught:
        ask()
    assert told in str(caught.value)


@pytest.mark.parametrize("released", ["liu2022/rl_lsfc", pytest.param("spotweave", marks=pytest.mark.real)])
def test_a_released_policy_acts_and_explains_what_it_takes(released: str) -> None:
    policy = spotweave.load(released, "multicluster")
    env = spotweave.make("multicluster")
    observation, _ = env.reset(seed=1)
    for _ in range(20):
        choices = policy.explain(observation)
        assert [choice.taken for choice in choices] == [True] + [False] * (len(choices) - 1)
        assert choices[0].action == policy.act(observation)
        assert all(observation["action_mask"][choice.action] for choice in choices)
        for choice in choices:
            assert choice.total is not None
            assert choices[0].total >= choice.total  # type: ignore[operator]
            assert set(choice.values) == set(policy.spec.components)
            assert choice.cluster in (None, *policy.spec.cluster_names)
        observation, *_ = env.step(choices[0].action)


def test_functions_policies_and_names_are_compared_on_the_same_episodes(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    flat = spotweave.make("multicluster", flat=True, **TINY)
    assert isinstance(flat, FlatWorldEnv)
    seen: list[tuple[int, ...]] = []

    def first(features: np.ndarray) -> np.ndarray:
        seen.append(features.shape)
        return np.array([0])  # not always valid

    found = spotweave.compare(
        flat, {"first": first, "fast": make_rule("maf")}, episodes=2, rules=["maf", "eft"]
    )
    assert [run.name for run in found.runs] == ["first", "fast", "maf", "eft"]
    assert set(seen) == {flat.observation_space.shape}
    same = found.paired["maf"][found.objective].difference
    assert found.paired["fast"][found.objective].difference == same
    printed = capsys.readouterr().out
    assert "first is " in printed
    assert "report" not in printed

    def place(observation: dict[str, np.ndarray]) -> int:
        return int(np.flatnonzero(observation["action_mask"])[0])

    env = spotweave.make("multicluster", **TINY)
    again = spotweave.compare(env, {"place": place, "maf": "maf"}, episodes=2, rules=[], out=tmp_path / "out")
    assert again.values("maf", again.objective) == pytest.approx(found.values("maf", found.objective))
    assert (tmp_path / "out" / "report.html").is_file()
    assert f"report: {tmp_path / 'out' / 'report.html'}" in capsys.readouterr().out


@pytest.mark.real
def test_a_training_gives_its_folder_and_its_policy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    env = spotweave.make("spot", rules="adrs_single", work_h=2, deadline_h=4)
    settings = {"episodes": 6, "validation_episodes": 2, "test_episodes": 2}
    mine = spotweave.train(env, seed=1, device="cpu", out=str(tmp_path / "run"), trainer=settings)
    assert mine.folder == tmp_path / "run"
    assert {"policy.pt", "config.yaml", "tensorboard", "test", "done.json"} <= {
        p.name for p in mine.folder.iterdir()
    }
    assert "report: " in capsys.readouterr().out
    observation, _ = env.reset(seed=1)
    assert mine.act(observation) == spotweave.load(mine.folder, env).act(observation)


def source_of(example: Path) -> str:
    """A script, or the code of a notebook."""
    text = example.read_text(encoding="utf-8")
    if example.suffix != ".ipynb":
        return text
    cells = [cell for cell in json.loads(text)["cells"] if cell["cell_type"] == "code"]
    assert [(cell["outputs"], cell["execution_count"]) for cell in cells] == [([], None)] * len(cells)
    return "\n".join("".join(cell["source"]) for cell in cells)


@pytest.mark.real
@pytest.mark.extra
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_runs(example: Path, tmp_path: Path) -> None:
    source = source_of(example)
    assert "20_000" in source or "UPDATES" in source
    for usual, small in SMALLER.items():
        source = source.replace(usual, small)
    sizes = {"dqn": "dict(learning_starts=10)", "maskable_ppo": "dict(n_steps=32, batch_size=32)"}
    done = python(f"SMALL = {sizes.get(example.stem)}\n{source}", tmp_path)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "mine is " in done.stdout
