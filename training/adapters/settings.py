"""Packages that the agents of libraries need."""

from __future__ import annotations

from importlib.util import find_spec

_NEEDS: dict[str, tuple[str, tuple[str, ...]]] = {
    "sb3_dqn": ("sb3", ("stable_baselines3",)),
    **dict.fromkeys(("maskable_ppo", "decima"), ("sb3", ("stable_baselines3", "sb3_contrib"))),
    "rllib_dqn": ("rllib", ("ray", "ray.rllib")),
}


class MissingExtraError(ValueError):
    """An agent was asked for whose library is not installed."""


def require_library(kind: str) -> None:
    """Make sure that the library behind an agent can be imported; other agents need none.

    Raises:
        MissingExtraError: naming the command that installs it.
    """
    if kind not in _NEEDS:
        return
    extra, modules = _NEEDS[kind]
    for module in modules:
        if find_spec(module) is None:
            raise MissingExtraError(
                f"agent={kind} is trained by {module}, which is not installed: "
                f"pip install 'spotweave[{extra}]'"
            )
