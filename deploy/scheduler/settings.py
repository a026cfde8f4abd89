"""The loop's own settings."""

from __future__ import annotations

from dataclasses import dataclass, field

from spotweave.deploy.billing import Transfers
from spotweave.envs.simulation.guards import GuardsConfig


@dataclass(frozen=True)
class SchedulerSettings:
    """How the loop behaves."""

    period_s: float = 5.0  # between two passes
    decisions_per_pass: int = 64  # at most this many about Spark jobs, and as many about federated clients
    ask_again_s: float = 30.0  # a task for which "none for now" was chosen is asked about again after this
    back_off_s: float = 5.0  # after the first failure of an action; doubles with each further one,
    back_off_most_s: float = 300.0  # up to this
    end_back_off_most_s: float = 5.0  # the same for what ends something, which costs until it is done
    # an offer that refused is left alone so long; doubled each time where a request or a node is at fault and
    # not the market
    cool_down_s: float = 120.0
    # an instance whose node has not answered so long after its launch is given up
    ready_within_s: float = 600.0
    # a job has failed after more attempts in a row that lost their instances, nothing saved
    losses_most: int = 50
    # a job has failed after this many attempts in a row that came to nothing on healthy instances, or could
    # not be started
    failures_most: int = 6
    silent_within_s: float = 90.0  # an instance whose node has not answered for longer is lost to its task
    # an instance that its provider has not reported for so long, and whose node does not answer, is gone
    vanished_after_s: float = 900.0
    guards: GuardsConfig = field(default_factory=GuardsConfig)
    # the policy is asked this often whether to move a task that runs (see `guards.moves.reconsidered`), a
    # stream at the end of a batch; 0: only when its provider advises to leave or announces an end
    reconsider_s: float = 1800.0
    set_up_s: float = 20.0  # expected from ready nodes to work: what runners need to bring a task up
    transfers: Transfers = field(default_factory=Transfers)  # what moving data between regions takes
    # what everything may cost together, since the deployment began; None: no limit
    budget_usd: float | None = None

    def back_off(self, tries: int) -> float:
        """Seconds to wait after the `tries`-th failure in a row (from 1)."""
        return min(self.back_off_most_s, self.back_off_s * 2.0 ** min(30, max(0, tries - 1)))
