"""The scheduler's loop: end again what was refused, look, reconcile, decide, write down, act, confirm.

Everything that is done is an intent in the store first. A pass that is killed anywhere leaves intents behind
that the next one does (each action is idempotent), and a restarted scheduler looks at what really runs before
it acts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import structlog

from spotweave.deploy.model.clock import Clock
from spotweave.deploy.providers.base import Provider
from spotweave.deploy.runners.base import Runner
from spotweave.deploy.scheduler.actions import Actions
from spotweave.deploy.scheduler.chooser import Chooser, Policies
from spotweave.deploy.scheduler.guards import Budgets
from spotweave.deploy.scheduler.metrics import SchedulerMetrics
from spotweave.deploy.scheduler.observer import Nodes, Observer
from spotweave.deploy.scheduler.retries import Cooldowns, Quarantine, Retries
from spotweave.deploy.scheduler.settings import SchedulerSettings
from spotweave.deploy.scheduler.settling import Ending
from spotweave.deploy.store.errors import UNUSABLE
from spotweave.deploy.store.store import Store

log = structlog.get_logger("scheduler")
PRUNE_S = 3600.0  # interval of pruning expired rows: little at a time


class Scheduler:
    """One deployment's scheduler; only the holder of the store's lead may run one."""

    def __init__(
        self,
        store: Store,
        providers: Mapping[str, Provider],
        runners: Sequence[Runner],
        policies: Policies,
        clock: Clock,
        nodes: Nodes,
        settings: SchedulerSettings | None = None,
        metrics: SchedulerMetrics | None = None,
    ) -> None:
        self.store, self.clock = store, clock
        self.settings = settings if settings is not None else SchedulerSettings()
        by_kind = {kind: runner for runner in runners for kind in runner.kinds}
        self.quarantine = Quarantine(store)
        self.observer = Observer(store, providers, by_kind, nodes, self.settings, self.quarantine)
        budgets = Budgets(store, self.settings)
        cooldowns = Cooldowns(self.settings.cool_down_s)
        retries = Retries(store, self.settings, cooldowns)
        self.ending = Ending(store, self.settings, budgets, retries, self.quarantine, nodes)
        self.chooser = Chooser(store, policies, self.settings, budgets, cooldowns, self.quarantine)
        self.actions = Actions(store, providers, by_kind, self.settings, retries)
        self.metrics = metrics
        if metrics is not None:
            metrics.watch(policies.decides, policies.watched)
        self._prune_s = 0.0

    def step(self) -> None:
        """One pass. Errors of providers, runners and single jobs are events and back-offs, never its end.

        Each stage is done whatever became of the others: what cannot be decided about must still be ended
        when its budget is spent, and what was written down must be done.

        Raises:
            StoreError: if the store cannot be used; nothing more is done then.
            Exception: what the first stage raised that failed as a whole, once all were done.
        """
        if self.metrics is None:
            self._step(self.clock.now())
            return
        with self.metrics.pass_of(self.store):
            now_s = self.clock.now()
            self._step(now_s)
            self.metrics.see(self.store, self.chooser.waiting, self.chooser.live, now_s)

    def _step(self, now_s: float) -> None:
        failed: list[Exception] = []
        with self.store.remembering():
            for stage in self._stages():
                try:
                    stage(now_s)
                except UNUSABLE:
                    raise
                except Exception as error:
                    log.exception("a stage of the pass failed", stage=stage.__name__)
                    failed.append(error)
        if failed:
            raise failed[0]

    def _stages(self) -> Sequence[Callable[[float], None]]:
        return (
            self.actions.end_again,
            *self.observer.looks,
            self._settle,
            self._choose,
            self.actions.act,
            self.quarantine.end_pass,
            self._prune,
        )

    def _settle(self, now_s: float) -> None:
        self.ending.settle(now_s, self.observer.silent)

    def _choose(self, now_s: float) -> None:
        self.chooser.choose(self.observer.offers, now_s, self.observer.told)

    def _prune(self, now_s: float) -> None:
        if now_s >= self._prune_s:
            self.store.prune(now_s)
            self._prune_s = now_s + PRUNE_S
