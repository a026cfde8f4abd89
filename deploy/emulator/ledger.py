"""The independent ledger: what the cloud would charge, apart from `deploy.billing` and by other means.

The rule (https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/billing-for-interrupted-spot-instances.html, and
the pricing page): begun seconds from `LaunchTime` to the shutdown, at least 60 for each start; a spot second
costs the price in force when it begins; nothing if EC2 interrupts an instance within an hour of its first
start. `LaunchTime` lies before `running`, where AWS's meter starts, by the launch latency: it is the only
start that the API shows, and so an upper bound. Compute Engine's rule is the same but for the free hour, and
its meter runs until an instance is TERMINATED (https://cloud.google.com/compute/vm-instance-pricing).

Disks (https://aws.amazon.com/ebs/pricing/): each by the seconds from its creation to its deletion, at least
60, whatever its instance does; a second is its part of the calendar month, UTC.

Amounts are exact fractions, so that no rounding is shared with the code that is checked.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from fractions import Fraction

from spotweave.deploy.emulator.world import Instance, Market, Stretch, Volume

_MINIMUM_S = 60


@dataclass(frozen=True)
class Entry:
    """One instance's bill; amounts are exact, as a fraction's text "n/d"."""

    instance_id: str
    zone: str
    instance_type: str
    market: str
    state: str
    client_token: str
    tags: dict[str, str]
    launched_s: float
    running_s: float | None
    ended_s: float | None
    seconds: int
    micro_usd: str
    disk_micro_usd: str
    interrupted: bool
    free: bool  # whether it costs nothing, for that reason


def entry(
    market: Market, instance: Instance, disk_usd_gib_month: float, now_s: float, free_first_s: float
) -> Entry:
    """The bill so far, up to a whole second."""
    cost, seconds = Fraction(0), 0
    # What never ran is charged for nothing.
    disks = instance.volumes if instance.stretches else []
    disk_cost = sum((_disk_cost(disk, disk_usd_gib_month, now_s) for disk in disks), Fraction(0))
    first = instance.stretches[0] if instance.stretches else None
    free = first is not None and _is_free(first, free_first_s)
    for stretch in instance.stretches:
        end_s = now_s if stretch.end_s is None else stretch.end_s
        ran = max(0, int(end_s) - int(stretch.start_s))
        seconds += ran
        if not (stretch is first and free):
            cost += _cost(market, instance, int(stretch.start_s), max(ran, _MINIMUM_S))
    return Entry(
        instance_id=instance.instance_id,
        zone=instance.pool.zone,
        instance_type=instance.pool.instance_type,
        market="spot" if instance.spot else "on_demand",
        state=instance.state,
        client_token=instance.client_token,
        tags=dict(instance.tags),
        launched_s=first.start_s if first else instance.launched_s,
        running_s=instance.running_s,
        ended_s=instance.ended_s,
        seconds=seconds,
        micro_usd=f"{cost.numerator}/{cost.denominator}",
        disk_micro_usd=f"{disk_cost.numerator}/{disk_cost.denominator}",
        interrupted=any(stretch.by_provider for stretch in instance.stretches),
        free=free,
    )


def total_usd(entries: Iterable[Entry]) -> Fraction:
    """Exact total of instances and disks in USD."""
    parts = (Fraction(one.micro_usd) + Fraction(one.disk_micro_usd) for one in entries)
    return sum(parts, Fraction(0)) / 1_000_000


def _is_free(first: Stretch, free_first_s: float) -> bool:
    return first.by_provider and first.end_s is not None and first.end_s - first.start_s < free_first_s


def _cost(market: Market, instance: Instance, start_s: int, seconds: int) -> Fraction:
    pool = instance.pool
    if not instance.spot:
        return Fraction(_micro(pool.on_demand_usd_hour) * seconds, 3600)
    changes = list(market.prices(pool, start_s, start_s + seconds))
    total = 0
    for k in range(len(changes)):
        begin_s, price = changes[k]
        until_s = changes[k + 1][0] if k + 1 < len(changes) else start_s + seconds
        total += _micro(price) * (
            _seconds_from(until_s, start_s, seconds) - _seconds_from(begin_s, start_s, seconds)
        )
    return Fraction(total, 3600)


def _disk_cost(disk: Volume, usd_gib_month: float, now_s: float) -> Fraction:
    at_s = int(disk.created_s)
    end_s = max(int(now_s if disk.deleted_s is None else disk.deleted_s), at_s + _MINIMUM_S)
    months = Fraction(0)
    while at_s < end_s:
        month = datetime.fromtimestamp(at_s, UTC).replace(day=1, hour=0, minute=0, second=0)
        # The 32nd day of a month lies in the next one.
        following = (month + timedelta(days=31)).replace(day=1)
        until_s = min(end_s, int(following.timestamp()))
        months += Fraction(until_s - at_s, int((following - month).total_seconds()))
        at_s = until_s
    return disk.size_gib * _micro(usd_gib_month) * months


def _seconds_from(at_s: float, start_s: int, seconds: int) -> int:
    """Number of the seconds that begin before a moment."""
    whole = int(at_s)
    return min(max(whole - start_s + (at_s > whole), 0), seconds)


def _micro(usd: float) -> int:
    return round(usd * 1_000_000)
