"""Quotas that several applications share. Applications know an offer by its name, so quotas do as well."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from envs.simulation.federations.rounds.application import Application
from envs.simulation.federations.rounds.server import require_at_least_zero


@dataclass(frozen=True)
class SharedQuota:
    """What all applications together may rent at once.

    Attributes:
        name: as messages show it, e.g. "gpus of region us-west1".
        limit: how many.
        amounts: by an offer's name, how many one instance takes; offers left out take none.
    """

    name: str
    limit: float
    amounts: Mapping[str, float]

    def __post_init__(self) -> None:
        require_at_least_zero(f"the limit of {self.name!r}", self.limit)
        for offer, amount in self.amounts.items():
            require_at_least_zero(f"what offer {offer!r} takes of {self.name!r}", amount)


def instances_of(offer: str, limit: float) -> SharedQuota:
    """No more than this many instances of an offer at once."""
    return SharedQuota(f"instances of {offer}", limit, {offer: 1})


def quotas_of(applications: Iterable[Application]) -> tuple[SharedQuota, ...]:
    """The applications' own quotas; those of the same name are the same quota.

    Raises:
        ValueError: if two of them give a quota, or what an offer takes of it, different numbers.
    """
    limits: dict[str, float] = {}
    amounts: dict[str, dict[str, float]] = {}
    for application in applications:
        for quota in application.quotas:
            if limits.setdefault(quota.name, quota.limit) != quota.limit:
                raise ValueError(
                    f"{application.name!r} has {quota.limit:g} {quota.name}, an application before it "
                    f"{limits[quota.name]:g}: applications that share a quota must agree on it"
                )
            taken = amounts.setdefault(quota.name, {})
            for number, offer in enumerate(application.offers):
                amount = quota.amounts.get(number, 0.0)
                if taken.setdefault(offer.name, amount) != amount:
                    raise ValueError(
                        f"an instance of {offer.name!r} takes {amount:g} {quota.name} in "
                        f"{application.name!r} and {taken[offer.name]:g} in an application before it: "
                        f"applications that share a quota must agree on it"
                    )
    return tuple(SharedQuota(name, limit, amounts[name]) for name, limit in limits.items())


def amounts_of(quotas: Iterable[SharedQuota], application: Application) -> NDArray[np.float64]:
    """[Q, offers] what one instance on each of an application's offers takes of each quota."""
    names = [offer.name for offer in application.offers]
    rows = [[quota.amounts.get(name, 0.0) for name in names] for quota in quotas]
    return np.array(rows, np.float64).reshape(-1, len(names))
