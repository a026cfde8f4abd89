"""The initial mapping of a training whose server is placed too: the exact model of Multi-FedLS (Brum 2023).

It is computed at submission from the current offers and only shown: the policy decides where tasks run, and
`spotweave explain` lists both. Messages are left out: they pass the SuperLink in any case.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from spotweave.agents.federated.mapping.initial import map_initially
from spotweave.deploy.model.instances import Offer
from spotweave.deploy.model.jobs import SERVER, Flower, JobSpec, ban
from spotweave.deploy.scheduler.rounds import DEFAULT_EPOCH_S
from spotweave.deploy.store.schema import Json
from spotweave.envs.simulation.federations.application import (
    Aggregation,
    Client,
    FederationError,
    FlApplication,
    Messages,
)
from spotweave.envs.simulation.federations.clouds import Clouds, Market, Provider, Region, VmType
from spotweave.envs.simulation.federations.model import Federation
from spotweave.envs.simulation.series import Floats

_WITHIN_S = 2.0
"""The submitter waits for it; what is not proved by then is told with its gap."""
_CLIENTS = 50
"""As the paper's largest; more would hold up who submits."""
_ANYWHERE = "offers"


def initial_mapping(spec: JobSpec, offers: Sequence[Offer]) -> dict[str, Json] | None:
    """Where each task would be best (event `job.mapped`), or why nowhere. None: no server is placed."""
    work = spec.work
    if not isinstance(work, Flower) or work.server is None:
        return None
    if len(work.clients) > _CLIENTS:
        return {"reason": f"it has {len(work.clients)} clients, and is mapped up to {_CLIENTS}"}
    try:
        federation = _Offered(spec, work, [one for one in offers if one.available and one.quota > 0])
        found = map_initially(
            federation,
            deadline_s=work.deadline_s or math.inf,
            budget_usd=spec.budget_usd or math.inf,
            time_limit_s=_WITHIN_S,
        )
    except FederationError as error:
        return {"reason": str(error)}
    server, *clients = federation.describe(found.best.placement)
    outcome = found.best.outcome
    return {
        "server": server,
        "clients": [f"{one.name}: {where}" for one, where in zip(work.clients, clients, strict=True)],
        "round_s": outcome.round_s,
        "usd": outcome.total_usd,
        "total_s": outcome.total_s,
        "gap": found.gap,
    }


class _Offered(Federation):
    """Offers as VM types, those whose quota may bind each in a region of its own that has it.

    Clients are priced "on demand" and the server "spot", whatever the offers' markets are: so the server has
    no price where only clients may run. Where a client may not run it takes for ever.
    """

    def __init__(self, spec: JobSpec, work: Flower, offers: Sequence[Offer]) -> None:
        tasks = [name for name in work.task_names if name != SERVER]

        def allowed(task: str) -> list[bool]:
            return [not ban(spec.resources_of(task), spec.places_of(task), one) for one in offers]

        may, serves = [allowed(name) for name in tasks], allowed(SERVER)
        epochs_s = [client.epoch_s or work.epoch_s or DEFAULT_EPOCH_S for client in work.clients]
        speeds = np.array([one.speed for one in offers])
        self._epochs_s = np.where(may, np.array(epochs_s)[:, None] / speeds, np.inf)
        kept = [k for k in range(len(offers)) if serves[k] or np.isfinite(self._epochs_s[:, k]).any()]
        self._epochs_s = self._epochs_s[:, kept]
        # Equal clients are those of equal rows.
        rows = {row.tobytes(): number for number, row in enumerate(self._epochs_s)}
        application = FlApplication(
            name=spec.name,
            rounds=work.rounds,
            clients=tuple(
                Client(client.name, f"data {rows[row.tobytes()]}", 1, 0, seconds, 0.0)
                for client, row, seconds in zip(work.clients, self._epochs_s, epochs_s, strict=True)
            ),
            messages=Messages(0.0, 0.0, 0.0, 0.0),
            communication_s=0.0,
            aggregation={_ANYWHERE: Aggregation(work.aggregation_s or 0.0)},
        )
        listed = [offers[k] for k in kept]
        # Offers that have room for all tasks are of one region: the fewer, the sooner it is proved.
        scarce = [one for one in listed if one.quota <= len(tasks)]
        few = {one.offer_id for one in scarce}
        clouds = Clouds(
            (Provider(_ANYWHERE, 0.0),),
            (
                Region(_ANYWHERE, _ANYWHERE),
                *(Region(one.offer_id, _ANYWHERE, max_vcpus=one.quota * one.vcpus) for one in scarce),
            ),
            tuple(
                VmType(
                    one.offer_id,
                    one.offer_id if one.offer_id in few else _ANYWHERE,
                    one.vcpus,
                    one.gpus,
                    one.memory_gib,
                    one.price_usd_hour,
                    one.price_usd_hour if serves[k] else None,
                )
                for k, one in zip(kept, listed, strict=True)
            ),
            {},
            {},
        )
        super().__init__(application, clouds, Market.SPOT, Market.ON_DEMAND)

    def _exec_s(self) -> Floats:
        return self._epochs_s

    def _comm_s(self) -> Floats:
        return np.zeros((len(self.clouds.regions), len(self.clouds.regions)))
