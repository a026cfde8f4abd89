"""An offer of a cloud: from its place, its hardware, the configuration of its type, and our own record."""

from __future__ import annotations

from typing import Protocol

from deploy.model.instances import Offer
from deploy.providers.availability import History
from deploy.providers.config import Place


class Hardware(Protocol):
    """What an instance has; see `Offer`."""

    vcpus: int
    memory_gib: float
    gpu: str | None


class Kind(Protocol):
    """What a configuration says of an instance type; see `Offer`."""

    quota: int
    speed: float


def offer(
    place: Place,
    hardware: Hardware,
    kind: Kind,
    history: History,
    *,
    reason: str,
    price_usd_hour: float,
    on_demand_usd_hour: float,
    disk_usd_month: float,
    launch_s: float,
    notice_s: float,
    free_first_s: float,
    billing_minimum_s: float,
    price_steps: tuple[tuple[float, float], ...],
) -> Offer:
    """The offer of a place, available unless there is a reason why not. The names are those of `Offer`.

    On demand there is no notice, and there are no up-spells.
    """
    spot = place.market == "spot"
    return Offer(
        offer_id=place.offer_id,
        provider=place.provider,
        region=place.region,
        zone=place.zone,
        instance_type=place.instance_type,
        market=place.market,
        vcpus=hardware.vcpus,
        memory_gib=hardware.memory_gib,
        gpu=hardware.gpu,
        speed=kind.speed,
        price_usd_hour=price_usd_hour,
        on_demand_usd_hour=on_demand_usd_hour,
        available=not reason,
        quota=kind.quota,
        up_ratio=history.up_ratio,
        spell_s=history.spell_s,
        mean_up_s=history.mean_up_s if spot else 0.0,
        launch_s=launch_s,
        notice_s=notice_s if spot else 0.0,
        free_first_s=free_first_s,
        billing_minimum_s=billing_minimum_s,
        disk_usd_month=disk_usd_month,
        reason=reason,
        price_steps=price_steps,
    )
