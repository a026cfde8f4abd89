"""Fine-tuning: the checkpoint that a training starts from, and whether what became of it is better."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from spotweave.agents.policy import Policy
from spotweave.agents.registry import AgentSettings, MTDQNSettings, agent_named
from spotweave.agents.stored import load_policy_state, part_of, policy_file
from spotweave.envs.simulation.world import BatchWorld, WorldSpec
from spotweave.training.checkpoint import RunDirectory, load_policy, write_policy
from spotweave.training.config import UsageError, plain
from spotweave.training.evaluation.episodes import Suite, run_suite
from spotweave.training.evaluation.statistics import Paired, compare_paired


def started_agent(agent: AgentSettings, checkpoint: str, spec: WorldSpec) -> dict[str, Any]:
    """The settings of the agent that goes on learning: those that the checkpoint was trained with.

    Raises:
        UsageError: if it holds another agent, or was trained with other settings than were asked for.
        CheckpointError: if it cannot be read, or was trained for another environment.
    """
    if not isinstance(agent, MTDQNSettings):
        raise UsageError(
            f"checkpoint={checkpoint} was given to start from, which agent={agent.kind} cannot: expected "
            "agent=mtdqn, or checkpoint=null with another trainer than adapt"
        )
    path = policy_file(checkpoint)
    stored = part_of(path, load_policy_state(path), spec.name).get("agent", {})
    if stored.get("kind", agent.kind) != agent.kind:
        raise UsageError(
            f"{path} holds a policy of agent={stored['kind']}, not of agent={agent.kind}: give a checkpoint "
            "of that agent"
        )
    load_policy(path, spec)
    defaults = plain(agent_named(agent.kind).defaults(agent.name))
    trained = {**defaults, **stored}
    for key, value in plain(agent).items():
        if key != "name" and value not in (defaults[key], trained[key]):
            raise UsageError(
                f"agent.{key} is {value}, but {path} was trained with {trained[key]}: leave agent.{key} out"
            )
    return {**trained, "name": agent.name}


def start_of(run: RunDirectory, checkpoint: str | None, world: str) -> dict[str, Any] | None:
    """The state of the policy that a run in a world starts from, kept in the run; None for one from scratch.

    Raises CheckpointError, WriteError.
    """
    if checkpoint is None:
        return None
    if not run.start.is_file():
        write_policy(run.start, policy_file(checkpoint).read_bytes())
    return part_of(run.start, load_policy_state(run.start), world)


@dataclass(frozen=True)
class Verdict:
    """The fine-tuned policy against the one that it started from, on validation episodes."""

    paired: Paired  # of the objective, fine-tuned minus original
    objective: str  # its name
    higher_is_better: bool  # whether more of it is better
    episodes: int  # how many
    accepted: bool  # whether the run keeps the fine-tuned policy

    def __str__(self) -> str:
        gain = self.paired.difference if self.higher_is_better else -self.paired.difference
        interval = self.paired.interval
        word = "better" if gain > 0 else "worse" if gain < 0 else "no better"
        end = "it is accepted" if self.accepted else "the original policy is kept"
        return (
            f"the adapted policy is {word} on validation episodes: {self.objective} "
            f"{self.paired.difference:+.2f} [{interval.low:+.2f}, {interval.high:+.2f}] an episode against "
            f"the original ({self.episodes} paired episodes): {end}"
        )


def judge(
    adapted: Policy, original: Policy, worlds: Sequence[BatchWorld], suite: Suite, accepted: bool
) -> Verdict:
    """Compare them on the suite's episodes in each of the worlds."""
    spec = worlds[0].spec
    objective, higher = spec.metrics[0], spec.higher_is_better[0]
    values = [
        [result.metrics[objective] for world in worlds for result in run_suite(world, policy, suite)]
        for policy in (adapted, original)
    ]
    paired = compare_paired(values[0], values[1], higher)
    return Verdict(paired, objective, higher, len(values[0]), accepted)
