"""Prices of Google Cloud: a dated list, of machines, GPUs beside them, disks and moves of data.

Spot prices change at most once a day (https://cloud.google.com/spot-vms/pricing), and Compute Engine has no
call that tells them: they are a list, whose steps say since when each is in force. `build_prices.py` makes
the one that ships.
"""

from __future__ import annotations

from bisect import bisect_right
from datetime import UTC, datetime
from operator import itemgetter
from pathlib import Path
from typing import Literal

from pydantic import Field, model_validator

from spotweave.deploy.providers.config import Place
from spotweave.deploy.providers.offers import CatalogueError, Hardware, Price, load_list
from spotweave.deploy.yamlfile import Part

SHIPPED = Path(__file__).with_name("prices.json")
_REMEDY = "add it to a list of your own"
GPU_MEMORY_GIB = {
    "A100": 40.0,
    "A100-80GB": 80.0,
    "L4": 24.0,
    "P4": 8.0,
    "P100": 16.0,
    "T4": 16.0,
    "V100": 16.0,
}
"""Of each model, as https://cloud.google.com/compute/docs/gpus names it."""
Steps = tuple[tuple[float, float], ...]
"""(epoch seconds, USD per hour), by rising time; the first also holds before its time."""


class Step(Part):
    """A price and since when it is in force; None: it is not known, or not to be had."""

    since: datetime
    on_demand_usd_hour: Price | None = None
    spot_usd_hour: Price | None = None

    @property
    def since_s(self) -> float:
        """Epoch seconds."""
        return (self.since if self.since.tzinfo else self.since.replace(tzinfo=UTC)).timestamp()


class Region(Part):
    """Prices of machines, of GPUs beside them and of disks in a region, or where it differs, in a zone."""

    types: dict[str, tuple[Step, ...]] = Field(default_factory=dict)
    gpus: dict[str, tuple[Step, ...]] = Field(default_factory=dict)
    disk_usd_gib_month: dict[str, Price] = Field(default_factory=dict)


class Egress(Part):
    """USD for a GB that leaves a region of Google's, by where it goes; `internet`: to another cloud."""

    same_continent: Price
    us_europe: Price
    other: Price
    internet: Price


class PriceList(Part):
    """The whole list, by region or zone (a zone's goes first), and where each part comes from."""

    format: Literal[1]
    sources: dict[str, str]
    types: dict[str, Hardware]
    egress: Egress
    regions: dict[str, Region]

    @model_validator(mode="after")
    def _ordered(self) -> PriceList:
        for name, region in self.regions.items():
            for what, steps in {**region.types, **region.gpus}.items():
                times = [step.since_s for step in steps]
                if not times or times != sorted(set(times)):
                    raise ValueError(f"{name} {what}: expected steps by rising time")
        return self

    def hardware(self, instance_type: str) -> Hardware:
        """Hardware of a machine type with its GPUs. Raises CatalogueError."""
        machine, gpu, gpus = parts(instance_type)
        if machine not in self.types:
            raise CatalogueError(f"the price list has no machine type {machine}: {_REMEDY}")
        found = self.types[machine]
        if gpu is None:
            return found
        memory_gib = GPU_MEMORY_GIB.get(model := _model(gpu), 0.0)
        return found.model_copy(update={"gpu": model, "gpus": gpus, "gpu_memory_gib": memory_gib})

    def steps(self, place: Place) -> Steps:
        """What an instance of an offer costs, with its GPUs. Raises CatalogueError."""
        machine, gpu, gpus = parts(place.instance_type)
        steps = self._listed(place, "types", machine)
        if gpu is None:
            return steps
        beside = self._listed(place, "gpus", gpu)
        times = sorted({time_s for time_s, _ in (*steps, *beside)})
        # Whole micro-USD, as they are billed.
        return tuple(
            (time_s, round(price_at(steps, time_s) + gpus * price_at(beside, time_s), 6)) for time_s in times
        )

    def disk_usd_gib_month(self, region: str, kind: str) -> float:
        """Price of a disk. Raises CatalogueError."""
        prices = self.regions[region].disk_usd_gib_month if region in self.regions else {}
        if kind not in prices:
            raise CatalogueError(f"the price list has no disk {kind} in {region}: {_REMEDY}")
        return prices[kind]

    def egress_usd_gb(self, start: str, end: str) -> float:
        """Price of moving data between two Google regions in USD per GB."""
        continents = {_continent(start), _continent(end)}
        if start == end:
            return 0.0
        if len(continents) == 1:
            return self.egress.same_continent
        return self.egress.us_europe if continents == {"america", "europe"} else self.egress.other

    def _listed(self, place: Place, kind: Literal["types", "gpus"], name: str) -> Steps:
        for where in (place.zone, place.region):
            listed = getattr(self.regions[where], kind).get(name, ()) if where in self.regions else ()
            prices = [
                (one.since_s, one.spot_usd_hour if place.market == "spot" else one.on_demand_usd_hour)
                for one in listed
            ]
            known = tuple((since_s, price) for since_s, price in prices if price is not None)
            if known:
                return known
        raise CatalogueError(
            f"the price list has no price of {name} ({place.market}) in {place.region}: {_REMEDY}, "
            "or leave that market out"
        )


def load_prices(path: Path | None) -> PriceList:
    """A list; None: the one that ships. Raises CatalogueError."""
    return load_list(PriceList, SHIPPED if path is None else path)


def parts(instance_type: str) -> tuple[str, str | None, int]:
    """Machine type, GPU and how many: `n1-standard-4+2xnvidia-tesla-t4`."""
    machine, _, attached = instance_type.partition("+")
    count, _, gpu = attached.partition("x")
    return (machine, gpu, int(count)) if attached else (machine, None, 0)


def _model(accelerator: str) -> str:
    """As jobs and the other clouds name it: `nvidia-tesla-t4` is a T4."""
    return accelerator.removeprefix("nvidia-").removeprefix("tesla-").upper()


def price_at(steps: Steps, now_s: float) -> float:
    """In force at a moment."""
    past = until(steps, now_s)
    return past[-1][1] if past else steps[0][1]


def until(steps: Steps, now_s: float) -> Steps:
    """Price steps up to and including a moment."""
    return steps[: bisect_right(steps, now_s, key=itemgetter(0))]


def _continent(region: str) -> str:
    prefix = region.split("-")[0]
    return "america" if prefix in ("us", "northamerica") else prefix
