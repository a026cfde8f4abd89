"""The policies that are compared, from the rule of a paper to the learned one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from agents.federated.schedulers.observing import Observing
from agents.named import named_rule
from agents.policy import Policy
from agents.stored import policy_file, released_names
from envs.simulation.federations.episodes.source import ApplicationSource
from envs.simulation.federations.episodes.world import FederatedWorld
from envs.simulation.federations.rounds.application import Application
from envs.simulation.federations.rounds.decisions import RoundScheduler
from training.checkpoint import load_policy
from training.evaluation.episodes import Progress
from training.evaluation.suite import Suite
from training.releases import file_hash
from training.studies.federated.playing import Episodes, columns, play_all

RELEASED = "federated"
"""The released policy that is played unless another is named."""
LEARNED = "learned"
ROUND_COST = "round_cost"
TITLES = {ROUND_COST: "Spotweave's rule (`round_cost`)", LEARNED: "Spotweave, learned"}


@dataclass(frozen=True)
class Learned:
    """The learned policy: its file, and what tells it from any other."""

    path: Path
    sha256: str

    def load(self, source: ApplicationSource) -> Policy:
        """Ready for the offers of a source. Raises CheckpointError."""
        return load_policy(self.path, FederatedWorld(source, 1).spec)


def find_learned(checkpoint: str | None) -> Learned | None:
    """The policy that --checkpoint names; the released one where nothing was said and there is one.

    Raises:
        UsageError: if there is none of that name.
    """
    if checkpoint == "none" or (checkpoint is None and RELEASED not in released_names()):
        return None
    path = policy_file(RELEASED if checkpoint is None else checkpoint)
    return Learned(path, file_hash(path))


@dataclass(frozen=True)
class Contestant:
    """One row of a table.

    Attributes:
        name: in files.
        title: on pages.
        identity: what its episodes depend on besides the scenario.
        play: gives its episodes.
        ours: whether it is Spotweave's.
    """

    name: str
    title: str
    identity: str
    play: Callable[[Suite, Progress | None], Episodes]
    ours: bool = False


def scheduler(
    name: str,
    title: str,
    source: ApplicationSource,
    make: Callable[[Application], RoundScheduler],
) -> Contestant:
    """A scheduler of the literature."""
    return Contestant(
        name, title, f"scheduler {name}", lambda suite, told: columns(play_all(source, make, suite, told))
    )


def reading(
    name: str, title: str, source: ApplicationSource, policy: Policy, identity: str, measured: bool = False
) -> Contestant:
    """A rule or a network, which reads observations."""
    return Contestant(
        name,
        title,
        identity,
        lambda suite, told: columns(play_all(source, lambda _: Observing(policy, measured), suite, told)),
        ours=name in TITLES,
    )


def rule(name: str, title: str, source: ApplicationSource, measured: bool = False) -> Contestant:
    """A rule that reads observations."""
    return reading(name, title, source, named_rule(name), f"rule {name}", measured)


def ours(source: ApplicationSource, learned: Learned | None, measured: bool = False) -> list[Contestant]:
    """Spotweave's rule, and the learned policy where there is one."""
    found = [rule(ROUND_COST, TITLES[ROUND_COST], source, measured)]
    if learned is not None:
        identity = f"checkpoint {learned.sha256}"
        found.append(reading(LEARNED, TITLES[LEARNED], source, learned.load(source), identity, measured))
    return found
