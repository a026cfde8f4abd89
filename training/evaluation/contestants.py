"""From names and checkpoint paths to the policies that take part in a comparison."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from agents.named import RULE_NAMES, named_rule, rules_of
from agents.policy import Policy
from agents.stored import policy_file
from envs.environments import ENVIRONMENTS
from envs.simulation.world import WorldSpec
from training.checkpoint import load_policy
from training.config import UsageError
from training.releases import file_hash

Checkpoints = str | Sequence[str] | Mapping[str, str] | None
"""A path or released name, several of them, or some by the name that tables shall print."""


def load_checkpoints(
    checkpoint: Checkpoints, spec: WorldSpec, weights: Sequence[float] | None, device: str
) -> dict[str, tuple[Policy, str]]:
    """Trained policies with their paths, by name: the mapping's, or else the agent's in the checkpoint.

    Raises:
        UsageError: if two checkpoints have one name, or a name that is a rule's.
        CheckpointError: if one does not fit the world.
    """
    if checkpoint is None:
        pairs: list[tuple[str | None, str]] = []
    elif isinstance(checkpoint, str):
        pairs = [(None, checkpoint)]
    elif isinstance(checkpoint, Mapping):
        pairs = [(str(name), path) for name, path in checkpoint.items()]
    else:
        pairs = [(None, path) for path in checkpoint]
    loaded: dict[str, tuple[Policy, str]] = {}
    for name, path in pairs:
        policy = load_policy(policy_file(path), spec, weights, device)
        if name is not None:
            policy.name = name
        if policy.name in loaded or policy.name in RULE_NAMES:
            taken = "another checkpoint" if policy.name in loaded else "a rule"
            raise UsageError(
                f"{path} holds {policy.name!r}, the name of {taken}: name it yourself, "
                f"checkpoint={{my_{policy.name}: {path}}}"
            )
        loaded[policy.name] = (policy, path)
    return loaded


def default_rules(env: Mapping[str, Any]) -> Sequence[str]:
    """The rules that policies are compared with in an environment, unless the user names others."""
    entry = ENVIRONMENTS[env["name"]]
    return rules_of(env["name"], entry.reference) if entry.rules is None else entry.rules


def contestants(
    names: Sequence[str] | None,
    loaded: Mapping[str, tuple[Policy, str]],
    default_rules: Sequence[str],
    spec: WorldSpec,
) -> list[Policy]:
    """The policies in the order of `names`; without names: every checkpoint, then the world's rules.

    Without names and checkpoints MAF comes first, as the reference that the literature uses.

    Raises:
        UsageError: for an unknown name, an agent without its checkpoint, or a checkpoint that no name uses.
        ValueError: for a rule that does not know what is decided in the world.
    """
    if names is None:
        rules = sorted(default_rules, key=lambda name: name != "maf") if not loaded else default_rules
        return [policy for policy, _ in loaded.values()] + [named_rule(name, spec) for name in rules]
    for name, (_, path) in loaded.items():
        if name not in names:
            raise UsageError(f"checkpoint {path} holds {name!r}, which policies= does not name: add it there")
    policies: list[Policy] = []
    for name in names:
        if name in loaded:
            policies.append(loaded[name][0])
        elif name in RULE_NAMES:
            policies.append(named_rule(name, spec))
        else:
            near = get_close_matches(name, [*RULE_NAMES, *loaded], 1)
            hint = f"did you mean {near[0]!r}? " if near else ""
            raise UsageError(
                f"policy {name!r} is not a rule, so it needs a checkpoint of that name "
                f"(checkpoint=PATH): {hint}rules are {', '.join(RULE_NAMES)}"
            )
    return policies


def checkpoint_facts(loaded: Mapping[str, tuple[Policy, str]]) -> dict[str, dict[str, str]]:
    """Path and SHA-256 of each checkpoint, for the summary."""
    facts = {}
    for name, (_, path) in loaded.items():
        facts[name] = {"path": path, "sha256": file_hash(policy_file(path))}
    return facts
