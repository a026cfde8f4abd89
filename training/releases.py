"""Released policies: found by name, and made from a training run."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from spotweave.agents.registry import agent_named
from spotweave.agents.stored import FORMAT, RELEASED, load_policy_state, policy_file
from spotweave.training.checkpoint import write_policy
from spotweave.training.config import UsageError
from spotweave.training.evaluation.tables import number
from spotweave.training.files import file_hash, prepare_directory, write_text

MAX_BYTES = 8_000_000


def release(run: Path, name: str, table: str) -> Path:
    """Copy the policy of a finished run to `checkpoints/NAME` and write its card (README.md) next to it.

    `table` is what was measured: Markdown, or a sentence that says where it stands.

    Raises:
        UsageError: if the run is not finished, its policy is too large, or the name is not a plain path.
        CheckpointError: if its policy cannot be read (see `load_policy_state`).
        WriteError: if a file cannot be written.
    """
    if not (run / "done.json").is_file() or not (run / "policy.pt").is_file():
        raise UsageError(
            f"{run} is not a finished run: it has no done.json and policy.pt; train it to its end"
        )
    state, content = load_policy_state(run / "policy.pt"), (run / "policy.pt").read_bytes()
    folder = _write(name, content)
    write_text(folder / "README.md", card(name, state, content, table))
    return folder


def join(policies: Sequence[str], name: str, table: str) -> Path:
    """Put the policies of several environments into one file, `checkpoints/NAME`, with a card.

    The file is a checkpoint of each of these environments: what loads it takes the policy of its own.
    Policies are released names, directories of runs or policy.pt files; all else is as for `release`.

    Raises:
        UsageError: if two are of one environment, they are too large together, or the name is not a plain
            path.
        CheckpointError: if one cannot be read, or holds several policies itself.
        WriteError: if a file cannot be written.
    """
    worlds: dict[str, dict[str, Any]] = {}
    named: dict[str, str] = {}
    for one in policies:
        path = policy_file(one)
        state = load_policy_state(path)
        world = state["world"]["name"] if "world" in state else None
        if world is None or world in worlds:
            held = "holds several policies" if world is None else f"is of +env={world}, as {named[world]} is"
            raise UsageError(f"policies= names {one}, which {held}: expected one of each environment")
        worlds[world], named[world] = state, one
    if not worlds:
        raise UsageError("policies= is empty: expected released policies, one of each environment")
    buffer = io.BytesIO()
    torch.save({"format": FORMAT, "worlds": worlds}, buffer)
    folder = _write(name, buffer.getvalue())
    rows = [
        f"| `{world}` | {named[world]} | `{state['agent']['kind']}`, guided by "
        f"`{state['training']['guide']}` | `{file_hash(policy_file(named[world]))}` |"
        for world, state in worlds.items()
    ]
    digest = hashlib.sha256(buffer.getvalue()).hexdigest()
    command = f"python training/release.py policies=[{','.join(policies)}] name={name}"
    lines = [f"# {name}", "", f"One file, SHA-256 `{digest}`, made of these by `{command}`:", ""]
    lines += ["| `+env=` | policy | agent | its SHA-256 |", "|---|---|---|---|", *rows, ""]
    lines += ["## Measured", "", table.strip(), ""]
    lines += [f"Use it: `python training/compare.py +env={next(iter(worlds))} checkpoint={name}`.", ""]
    write_text(folder / "README.md", "\n".join(lines))
    return folder


def _write(name: str, content: bytes) -> Path:
    if not name or Path(name).is_absolute() or ".." in Path(name).parts:
        raise UsageError(f"name is {name!r}: expected one below checkpoints/, e.g. liu2022/rl_lsfc")
    if len(content) >= MAX_BYTES:
        raise UsageError(
            f"{name} has {len(content) / 1e6:.1f} MB, a release must stay below {MAX_BYTES / 1e6:.0f} MB: "
            "release a smaller network"
        )
    folder = prepare_directory(RELEASED / name)
    write_policy(folder / "policy.pt", content)
    return folder


def card(name: str, state: Mapping[str, Any], content: bytes, table: str) -> str:
    """What a released policy was trained on, by which command, and what was measured, as Markdown."""
    facts, world, agent = state["training"], state["world"], state["agent"]
    validation = ", ".join(f"{metric} {number(value)}" for metric, value in facts["validation"].items())
    guide = ", ".join(f"{metric} {number(value)}" for metric, value in facts["validation_guide"].items())
    # Without the world's settings the policy would be asked about another one. Several loads only train.
    settings = [word for word in facts["command"].split() if word.startswith("env.")]
    env = "".join(f" {word}" for word in settings if not word.startswith("env.loads="))
    rows = {
        "file": f"`policy.pt`, {len(content) / 1e6:.2f} MB, SHA-256 `{hashlib.sha256(content).hexdigest()}`",
        "agent": f"`{agent['kind']}`: {agent_named(agent['kind']).title}",
        "trained by": f"`{facts['command']}` at commit `{facts['commit']}`",
        "seed": str(facts["seed"]),
        "trained for": f"`{world['name']}`, {world['n_clusters']} clusters",
        "chosen": f"after {facts['episodes']} episodes, by the mean objective on validation episodes",
        "on validation": validation,
        f"the guide `{facts['guide']}` there": guide,
        "weights": ", ".join(
            f"{component} {weight:g}"
            for component, weight in zip(world["components"], state["weights"], strict=True)
        ),
        "licence": "Apache-2.0",
    }
    lines = [f"# {name}", "", "| | |", "|---|---|"]
    lines += [f"| {label} | {text} |" for label, text in rows.items() if text]
    lines += ["", "## Measured", "", table.strip(), ""]
    lines += [f"Use it: `python training/compare.py +env={world['name']}{env} checkpoint={name}`.", ""]
    return "\n".join(lines)
