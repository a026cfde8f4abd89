"""Trained policies in files: reading what `training/train.py` wrote, for evaluation and for the live side.

Only reading one needs torch: whether there is one is asked before anything heavy is imported.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spotweave.agents.registry import Shape, agent_named

if TYPE_CHECKING:
    import torch

    from spotweave.agents.policy import Policy
    from spotweave.envs.simulation.world import WorldSpec

FORMAT = 1
RELEASED = Path(__file__).resolve().parents[1] / "checkpoints"


class CheckpointError(ValueError):
    """A checkpoint that cannot be used, and why, in one line."""


def released_names(root: Path | None = None) -> list[str]:
    """Names of the released policies: their folders below `checkpoints/`."""
    root = RELEASED if root is None else root
    return sorted(path.parent.relative_to(root).as_posix() for path in root.rglob("policy.pt"))


def policy_file(checkpoint: str, root: Path | None = None) -> Path:
    """The policy.pt that a name means: a file, the directory of a run, or a released policy.

    A path that exists wins over a name.

    Raises:
        CheckpointError: if there is none; it lists what is released.
    """
    root = RELEASED if root is None else root
    for path in (Path(checkpoint), root / checkpoint):
        if path.is_file():
            return path
        if (path / "policy.pt").is_file():
            return path / "policy.pt"
    released = ", ".join(released_names(root)) or "nothing"
    raise CheckpointError(
        f"no checkpoint at {checkpoint}, nor one of that name: give the path of a policy.pt file, of a run's "
        f"directory, or a released name ({released})"
    )


def digest_file(policy: Path) -> Path:
    """Path of the file with the SHA-256 of a policy's file, as `sha256sum` writes it."""
    return policy.with_name(f"{policy.name}.sha256")


def load_policy_state(path: Path) -> dict[str, Any]:
    """Read what `save_policy` wrote: the file that its digest was made of, with weights that are numbers.

    A file with the policies of several environments has them in `worlds` (see `part_of`).

    Raises:
        CheckpointError: if the file is missing, is not a policy's state, is not the one its digest was made
            of, has no digest, or holds a weight that is not finite.
    """
    _require_file(path)
    recorded = digest_file(path)
    try:
        content = path.read_bytes()
        digests = recorded.read_text("utf-8", "replace").split() if recorded.is_file() else None
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror}; check its permissions") from error
    if digests is not None and hashlib.sha256(content).hexdigest() not in digests:
        raise CheckpointError(
            f"{path} is damaged or was replaced: its SHA-256 is not the one in {recorded.name}; restore the "
            "file, or train again"
        )
    state = parsed_state(path, io.BytesIO(content))
    policies = state.get("worlds", {"": state} if "network" in state else {})
    if policies and digests is None:
        raise CheckpointError(
            f"{path} has no digest: if you trust the file, run: cd {path.parent} && "
            f"sha256sum {path.name} > {recorded.name}"
        )
    for policy in policies.values():
        _require_finite(path, policy)
    return state


def part_of(path: Path, state: dict[str, Any], world: str) -> dict[str, Any]:
    """The policy's own state, in a file with the policies of several environments that of `world`.

    Raises:
        CheckpointError: if there are several and none is for this environment.
    """
    parts = state.get("worlds", {world: state})
    if world not in parts:
        raise CheckpointError(
            f"{path} holds policies for +env={', '.join(parts)}, none for +env={world}: give a checkpoint "
            "of this environment"
        )
    found: dict[str, Any] = parts[world]
    return found


def _require_file(path: Path) -> None:
    if not path.is_file():
        raise CheckpointError(f"no checkpoint at {path}: give the path of a policy.pt file")


def _require_finite(path: Path, state: dict[str, Any]) -> None:
    """A network of NaN would decide all the same, and nothing would tell."""
    import torch

    named: dict[str, torch.Tensor] = {**state["network"]}
    named |= {name: torch.tensor(state.get(name, [])) for name in ("scales", "weights")}
    for name, tensor in named.items():
        if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
            raise CheckpointError(
                f"{path} holds weights that are not finite numbers ({name}): its training diverged; train "
                "again, or use another checkpoint"
            )


def parsed_state(path: Path, source: io.BytesIO) -> dict[str, Any]:
    """What torch wrote, checked for our format; nothing in it is executed. Raises CheckpointError."""
    import torch

    try:
        state = torch.load(source, map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises many kinds for a file that is not its own
        raise CheckpointError(
            f"{path} is not a readable checkpoint ({type(error).__name__}): give the path of a policy.pt file"
        ) from error
    if not isinstance(state, dict) or "format" not in state:
        raise CheckpointError(f"{path} is not a Spotweave checkpoint: it lacks the format number")
    if state["format"] != FORMAT:
        raise CheckpointError(
            f"{path} has checkpoint format {state['format']}, this version reads format {FORMAT}: train again"
        )
    return state


def stored_policy(
    path: Path,
    state: dict[str, Any],
    spec: WorldSpec,
    weights: Sequence[float] | None = None,
    device: str = "cpu",
) -> Policy:
    """The greedy policy of a state that `load_policy_state` gave, ready for a world.

    Args:
        path: where it is from, for messages.
        state: the file's content, of which the part of this world is taken.
        spec: the world it shall act in.
        weights: (K,) other scalarisation weights than those trained with.
        device: where it computes.

    Raises:
        CheckpointError: if it was trained for another environment or number of clusters.
        ValueError: if the weights are too few, too many or not finite.
    """
    from spotweave.agents.mtdqn.policy import MTDQNPolicy
    from spotweave.agents.networks import ValuePolicy

    state = part_of(path, state, spec.name)
    require_fit(path, state, spec)
    agent = agent_named(state["agent"]["kind"])
    if agent.load is not None:
        return agent.load(state, spec, weights, device)
    assert agent.make is not None
    try:
        settings = agent.settings(**state["agent"])
        shape = Shape(state["world"]["n_clusters"], tuple(state["scales"]), tuple(state["weights"]))
        made = agent.make(settings, shape)
        network = made.network if isinstance(made, MTDQNPolicy) else made
        network.load_state_dict(state["network"])
    except (RuntimeError, TypeError) as error:
        raise CheckpointError(
            f"{path} holds weights that its own settings do not fit: train again"
        ) from error
    other = bool(weights) and list(weights or ()) != state["weights"]
    fixed = made.view.whole_episodes if isinstance(made, MTDQNPolicy) else made.n_outputs == 1
    if fixed and other:
        raise CheckpointError(
            f"{path} learned one scalarised value: its weights cannot be changed without retraining"
        )
    if isinstance(made, MTDQNPolicy):
        if not fixed:
            made.set_weights(weights or state["weights"])
        return made
    chosen = [1.0] if fixed else list(weights or state["weights"])
    return ValuePolicy(made, chosen, settings.name, device)


def require_fit(path: Path, state: dict[str, Any], spec: WorldSpec) -> None:
    """Raise CheckpointError unless the file holds a policy for such a world."""
    if "network" not in state or "world" not in state:
        raise CheckpointError(f"{path} holds no policy: give the path of a policy.pt file")
    trained, kind = state["world"], state["agent"]["kind"]
    if trained["name"] != spec.name or tuple(trained["components"]) != spec.components:
        raise CheckpointError(
            f"{path} was trained for +env={trained['name']}, not for +env={spec.name}: "
            "give a checkpoint of this environment"
        )
    if trained["n_clusters"] != spec.n_clusters and not agent_named(kind).any_clusters:
        raise CheckpointError(
            f"{path} was trained for {trained['n_clusters']} clusters, this world has {spec.n_clusters}: "
            "train again, or use an agent whose network does not depend on their number (agent=mtdqn)"
        )
