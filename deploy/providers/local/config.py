"""What the local provider offers: a YAML or JSON file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import Field, FiniteFloat, PositiveInt, model_validator

from spotweave.deploy.model.gpus import MOST_GPUS, is_model
from spotweave.deploy.model.instances import Market
from spotweave.deploy.node.api import GpuStatus
from spotweave.deploy.node.gpus import GpuWatch, Seen, uvm_is_loaded
from spotweave.deploy.providers.base import Provider
from spotweave.deploy.providers.config import Finding, Place, ProviderConfig
from spotweave.deploy.providers.local.traces import RecordedMarket, constant, load_recording
from spotweave.deploy.security.sandbox import Sandbox
from spotweave.deploy.yamlfile import ConfigError, NotNegative, Part, Positive
from spotweave.envs.traces.storage import TraceError

FIRST_LOOK_S = 10.0  # so long a driver may take that slept
_Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,60}$")]


class LocalOffer(Part):
    """One kind of instance."""

    instance_type: _Name  # its name
    market: Market  # how it is rented. Only spot instances are interrupted.
    region: _Name = "local"  # of the offer
    zone: _Name | Literal[""] = ""  # of the offer, "" for none
    # shown to the scheduler, and cores that an instance may use if the machine has this many
    vcpus: PositiveInt = 1
    memory_gib: Positive = 1.0  # shown to the scheduler; not enforced
    # of the machine's GPUs, that each instance has; instances share them when there are too few
    gpus: Annotated[int, Field(ge=0, le=MOST_GPUS)] = 0
    # which of them, where the machine has several models; None: the first
    gpu: Annotated[str, Field(min_length=1)] | None = None
    speed: Positive = 1.0  # relative to the reference instance type
    # folder of a market trace (docs/traces.md), relative to the configuration; None: no changes
    trace: str | None = None
    price_usd_hour: NotNegative | None = None  # where the trace holds no prices, and without a trace
    on_demand_usd_hour: NotNegative | None = None  # of the same type; None: the price itself
    quota: PositiveInt = 4  # instances that may run at once
    launch_s: NotNegative = 0.0  # from the request until the node agent starts
    notice_s: NotNegative = 120.0  # spot: from the notice to the end. Real seconds, never compressed.
    rebalance_s: NotNegative = 0.0  # spot: the rebalance hint comes so long before the notice
    # spot: share of the interruptions that come without notice
    notice_missed: Annotated[FiniteFloat, Field(ge=0, le=1)] = 0.0
    free_first_s: NotNegative = 0.0  # an instance that is interrupted earlier costs nothing
    billing_minimum_s: NotNegative = 60.0  # every instance costs at least this many seconds

    @property
    def place(self) -> Place:
        """Place of the offer."""
        return Place("local", self.region, self.zone, self.instance_type, self.market)

    @property
    def offer_id(self) -> str:
        """local/ZONE or REGION/TYPE/MARKET."""
        return self.place.offer_id

    def gpus_of(self, seen: Seen | None) -> list[GpuStatus]:
        """Those of the machine's GPUs that its instances have: of one model."""
        if seen is None or not self.gpus:
            return []
        found = [one for one in seen.gpus if is_model(self.gpu or "", one.name)]
        return [one for one in found if one.name == found[0].name]

    def lacks(self, seen: Seen | None) -> str:
        """What the machine lacks of its GPUs, in one line; "": nothing."""
        if len(self.gpus_of(seen)) >= self.gpus:
            return ""
        machine = seen or "does not tell of any"
        return f"an instance has {self.gpus} {self.gpu or 'GPU'}, this machine {machine}"

    @model_validator(mode="after")
    def _priced(self) -> LocalOffer:
        if self.trace is None and self.price_usd_hour is None:
            raise ValueError("give it a trace or a price_usd_hour")
        if self.gpu is not None and not self.gpus:
            raise ValueError(f"gpu is {self.gpu!r} and gpus is 0: say how many of them an instance has")
        return self


class LocalConfig(ProviderConfig):
    """The local provider's configuration."""

    state: Path  # folder of everything it must remember; absolute, or relative to the configuration
    time_factor: Positive = 1.0  # recorded seconds that pass in one real second. Prices stay per real hour.
    trace_start_s: NotNegative = 0.0  # where in the recordings the provider's first moment lies
    seed: int = 0  # of what is left to chance (interruptions without notice)
    imds_poll_s: Positive = 5.0  # seconds between two looks of a node agent at its metadata service
    # ended instances and their working folders are kept so long
    keep_s: Annotated[FiniteFloat, Field(ge=3600)] = 3600.0
    offers: Annotated[tuple[LocalOffer, ...], Field(min_length=1)]  # what can be rented
    recorded: ClassVar[bool] = False

    @model_validator(mode="after")
    def _distinct(self) -> LocalConfig:
        names = [offer.offer_id for offer in self.offers]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"two offers are {twice[0]}: zone, type or market must differ")
        return self

    @property
    def state_folder(self) -> Path:
        """Absolute."""
        return (self.folder / self.state).resolve()

    def open(self, sandbox: Sandbox | None = None) -> Provider:
        """This machine. Raises ConfigError, ProviderError."""
        from spotweave.deploy.providers.local.provider import LocalProvider

        return LocalProvider(self, sandbox)

    def places(self) -> dict[str, Place]:
        """By offer id; the recordings are read too. Raises ConfigError."""
        self.recordings()
        return {one.offer_id: one.place for one in self.offers}

    def check(self, deployment: str) -> Iterator[Finding]:
        """Whether this machine has the GPUs that offers name."""
        if not any(one.gpus for one in self.offers):
            return
        watch = GpuWatch()
        seen = watch.seen(FIRST_LOOK_S)
        watch.close()
        problems = sorted({lacks for one in self.offers if (lacks := one.lacks(seen))})
        for lacks in problems:
            remedy = "mend that (docs/gpu.md), or take gpus out of the offers"
            yield Finding("GPUs", "missing", f"{lacks}: {remedy}")
        if problems or seen is None:
            return
        if uvm_is_loaded():
            yield Finding("GPUs", "right", f"{seen}, driver {seen.gpus[0].driver}")
        else:
            remedy = "run `nvidia-modprobe -c0 -u`, after each start of this machine"
            yield Finding("GPUs", "missing", f"no job could use CUDA: there is no /dev/nvidia-uvm; {remedy}")

    def looks_after(self, region: str) -> bool:
        """Always: what was started is in the state folder, whatever its region is called now."""
        return True

    def recordings(self) -> dict[str, RecordedMarket]:
        """The market of every offer, by offer id. Raises ConfigError."""
        found = {}
        for offer in self.offers:
            try:
                if offer.trace is not None:
                    found[offer.offer_id] = load_recording(self.folder / offer.trace, offer.price_usd_hour)
                elif offer.price_usd_hour is not None:
                    found[offer.offer_id] = constant(offer.price_usd_hour)
            except TraceError as error:
                raise ConfigError(f"{offer.offer_id}: {error}") from error
        return found
