"""What providers of clouds share: launches and their retries, admission, offers, silent regions, ends."""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any, ClassVar, Generic, Literal, NamedTuple, TypeVar
from urllib.parse import urlsplit

import structlog
from pydantic import Field, IPvAnyAddress, PositiveInt

from spotweave.deploy.model.instances import InstanceReport, InstanceState, LaunchRequest, Offer
from spotweave.deploy.providers.base import CapacityError, ProviderError, QuotaError, RefusedError
from spotweave.deploy.providers.config import Place, ProviderConfig
from spotweave.deploy.providers.offers import Availability, Hardware
from spotweave.deploy.providers.userdata import NodeConfig
from spotweave.deploy.security.keys import is_loopback
from spotweave.deploy.yamlfile import ConfigError, Part, Positive

log = structlog.get_logger("providers")
# The configuration that the providers of all clouds share.


CloudMarket = Literal["spot", "on_demand"]


class InstanceType(Part):
    """One type that may be rented."""

    quota: PositiveInt  # instances of it that may run at once in one zone and market, for this deployment
    speed: Positive = 1.0  # relative to the reference type (1.0), larger is faster
    # how it may be rented
    markets: Annotated[tuple[CloudMarket, ...], Field(min_length=1)] = ("spot", "on_demand")
    # spot: never pay more. EC2 ends what costs more; on Google Cloud, which knows no maximum price, nothing
    # is rented while the list's price is higher. None: the on-demand price on EC2, no limit on Google Cloud.
    max_price_usd_hour: Positive | None = None


class CloudConfig(ProviderConfig):
    """What the configurations of all clouds have; `state` is for the availability record, if it is kept."""

    regions: Mapping[str, Any]  # by name; each has `zones` that may be used
    instance_types: Mapping[str, InstanceType]  # by name
    node: NodeConfig  # how nodes start
    disk_gib: int = 50  # size of the root disk
    # of an emulator; None: what AWS_ENDPOINT_URL or COMPUTE_EMULATOR_HOST says, else the cloud itself
    endpoint_url: Annotated[str, Field(pattern=r"^https?://")] | None = None
    # an offer that had no capacity is left alone so long; twice as long each further time,
    cool_down_s: Positive = 120.0
    cool_down_most_s: Positive = 3600.0  # up to this
    visible_within_s: Positive = 120.0  # a new instance may stay unlisted so long
    launch_s: Positive = 90.0  # expected seconds from the request to a ready node
    joins: ClassVar[bool] = True
    provider: ClassVar[str]
    cloud: ClassVar[str]  # name of the cloud in messages

    @abstractmethod
    def prices(self) -> Any:
        """The price list. Raises ConfigError if it cannot be read, or lacks something that is configured."""

    def ca_pem(self) -> str | None:
        """Certificate that nodes trust. Raises ConfigError."""
        return self.node.ca_pem(self.folder)

    def places(self) -> dict[str, Place]:
        """By offer id; the price list and the certificate are read too. Raises ConfigError."""
        self.prices()
        self.ca_pem()
        return {place.offer_id: place for place in self.unchecked_places()}

    def unchecked_places(self) -> Iterator[Place]:
        """Everything that may be rented; nothing else is read."""
        for region in self.regions:
            for zone in self.regions[region].zones:
                for name, kind in self.instance_types.items():
                    for market in kind.markets:
                        yield Place(self.provider, region, zone, name, market)

    def looks_after(self, region: str) -> bool:
        """Whether instances in this region would be seen and ended."""
        return region in self.regions

    def require_reachable(self, address: IPvAnyAddress) -> None:
        """Nodes find what runs jobs at this address. Raises ConfigError."""
        if address.is_loopback and not is_loopback(urlsplit(self.node.scheduler_url).hostname or ""):
            raise ConfigError(
                f"runners.address is {address}, which instances of {self.cloud} cannot reach: set it to "
                "this machine's address in their network"
            )


LOOK_S = 20.0  # for what runs and for prices: pages of them, also for a machine that is busy
QUEUE_S = 5.0
CHANGE_S = 15.0  # for a launch or an end
AGAIN_S = 60.0
MOST_LATE = 8
"""Late calls of one kind to one region that go on; beyond them it is not asked until one of them ends."""
T = TypeVar("T")


class Calls:
    """Calls of one provider, which errors name. Safe to use from several threads."""

    def __init__(self, provider: str, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._provider, self._monotonic = provider, monotonic
        self._late: dict[tuple[str, str], list[tuple[float, Future[object]]]] = {}
        self._lock = threading.Lock()

    def each(
        self, kind: str, within_s: float, asks: Mapping[str, Callable[[], T]]
    ) -> tuple[dict[str, T], dict[str, ProviderError]]:
        """Ask some regions at the same time.

        `asks` by region take `within_s` together; late calls are kept apart by `kind`, which is in words.
        Returns the answers of those that gave one, and why the others did not, in the order of `asks`.
        """
        errors: dict[str, ProviderError] = {}
        started: dict[str, Future[T]] = {}
        for region, ask in asks.items():
            refused = self._refused(kind, region)
            if refused:
                errors[region] = ProviderError(refused)
            else:
                started[region] = _start(f"{self._provider} {region} {kind}", ask)
        wait(started.values(), within_s)
        answers: dict[str, T] = {}
        for region, future in started.items():
            where = f"{self._provider} {region}: {kind}"
            if not future.done():
                with self._lock:
                    late: Future[object] = future  # type: ignore[assignment]
                    self._late.setdefault((kind, region), []).append((self._monotonic(), late))
                errors[region] = ProviderError(f"{where}: no answer within {within_s:g} s")
                continue
            error = future.exception()
            if error is None:
                answers[region] = future.result()
            elif isinstance(error, ProviderError):
                errors[region] = error
            else:
                # An answer that we cannot read is no reason not to read those of the others.
                log.error("a call failed", provider=self._provider, region=region, kind=kind, exc_info=error)
                errors[region] = ProviderError(f"{where}: {type(error).__name__}: {error}")
        return answers, {region: errors[region] for region in asks if region in errors}

    def one(self, kind: str, within_s: float, region: str, ask: Callable[[], T]) -> T:
        """Ask one region. Raises ProviderError, also if it takes too long."""
        answers, errors = self.each(kind, within_s, {region: ask})
        if errors:
            raise errors[region]
        return answers[region]

    def _refused(self, kind: str, region: str) -> str:
        """Why a region is not asked now; "" if it may be."""
        with self._lock:
            now_s = self._monotonic()
            late = [
                (began_s, future)
                for began_s, future in self._late.pop((kind, region), ())
                if not future.done() or (future.exception() is not None and now_s - began_s < AGAIN_S)
            ]
            if not late:
                return ""
            self._late[kind, region] = late
            if now_s - late[-1][0] < AGAIN_S or len(late) >= MOST_LATE:
                where = f"{self._provider} {region}: {kind}"
                return f"{where}: it did not answer in time, and is left alone for {AGAIN_S:g} s"
            return ""


def _start(name: str, ask: Callable[[], T]) -> Future[T]:
    """In a thread of its own. An executor's would hold up the end of the process."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(ask())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, name=name, daemon=True).start()
    return future


KEPT_S = 3600.0  # ended instances are reported for so long, even where the cloud forgets them sooner
_MINIMUM_S = 60.0
"""Every instance costs at least this many seconds.

https://aws.amazon.com/ec2/pricing/on-demand/, https://cloud.google.com/compute/vm-instance-pricing
"""


# What a provider remembers of its instances: it bridges the delays with which its cloud tells of them.


@dataclass(frozen=True)
class Known:
    """An instance as it was last seen, first seen or rented, and last listed (epoch seconds; None: never)."""

    report: InstanceReport
    deployment: str
    region: str
    first_s: float
    seen_s: float | None


class Memory:
    """Safe to use from several threads. `interrupted` is told of what a cloud is newly seen to have ended."""

    def __init__(self, visible_within_s: float, interrupted: Callable[[InstanceReport, float], None]) -> None:
        self._visible_within_s, self._interrupted = visible_within_s, interrupted
        self._known: dict[str, Known] = {}
        self._lock = threading.RLock()

    def get(self, name: str) -> Known | None:
        """By the provider's name."""
        with self._lock:
            return self._known.get(name)

    def by_token(self, deployment: str, token: str) -> InstanceReport | None:
        """The instance that this client token gave."""
        with self._lock:
            for known in self._known.values():
                if known.deployment == deployment and known.report.client_token == token:
                    return known.report
        return None

    def running(self, deployment: str, offer_id: str) -> int:
        """Instances of an offer that take its quota."""
        with self._lock:
            return sum(
                known.deployment == deployment
                and known.report.offer_id == offer_id
                and known.report.state in (InstanceState.LAUNCHING, InstanceState.RUNNING)
                for known in self._known.values()
            )

    def ended(self) -> dict[str, float]:
        """When instances ended (epoch seconds), of those that have."""
        with self._lock:
            ends = ((name, known.report.ended_s) for name, known in self._known.items())
            return {name: ended_s for name, ended_s in ends if ended_s is not None}

    def remember(
        self, report: InstanceReport, deployment: str, region: str, now_s: float, *, seen: bool
    ) -> None:
        """Record an instance that was listed or rented."""
        with self._lock:
            before = self._known.get(report.instance_id)
            first_s = now_s if before is None else before.first_s
            seen_s = now_s if seen else None if before is None else before.seen_s
            self._known[report.instance_id] = Known(report, deployment, region, first_s, seen_s)
        was_live = before is None or before.report.state.live
        if report.by_provider and was_live and report.ended_s is not None:
            self._interrupted(report, now_s)

    def bridged(
        self, reports: Iterable[InstanceReport], deployment: str, silent: Collection[str], now_s: float
    ) -> list[InstanceReport]:
        """What the cloud says of regions that are not silent, and what it does not say yet or no more."""
        found = {one.instance_id: one for one in reports}
        with self._lock:
            for name, known in list(self._known.items()):
                if known.deployment != deployment or name in found or known.region in silent:
                    continue
                report = known.report
                new = known.seen_s is None and now_s - known.first_s < self._visible_within_s
                ended = report.ended_s is not None and now_s - report.ended_s < KEPT_S
                if new or ended:
                    found[name] = report
                else:
                    del self._known[name]
        return list(found.values())

    def stopping(self, names: Iterable[str]) -> bool:
        """Note that instances were told to end. Returns whether any was believed alive until now."""
        lived = False
        with self._lock:
            for name in names:
                known = self._known.get(name)
                if known is not None and known.report.state.live:
                    report = replace(known.report, state=InstanceState.STOPPING, node_port=0)
                    self._known[name] = replace(known, report=report)
                    lived = True
        return lived

    def is_new(self, name: str, now_s: float) -> bool:
        """Whether it was rented so lately that the cloud may not know it everywhere."""
        known = self.get(name)
        return known is not None and now_s - known.first_s < self._visible_within_s


class Quote(NamedTuple):
    """What an offer has and costs now, and why it cannot be had; see `Offer`."""

    hardware: Hardware
    price_usd_hour: float
    on_demand_usd_hour: float
    price_steps: tuple[tuple[float, float], ...]
    disk_usd_gib_month: float
    free_first_s: float
    reason: str


ConfigT = TypeVar("ConfigT", bound=CloudConfig)


class CloudProvider(ABC, Generic[ConfigT]):
    """Implements `Provider` on a cloud, whose own tags are the truth; memory bridges its delays.

    Making one raises ConfigError if the price list or the certificate cannot be used, ProviderError if the
    state folder cannot.
    """

    name: ClassVar[str]
    notice_s: ClassVar[float]
    keys: ClassVar[str]  # configuration keys that define offers, for messages

    def __init__(self, config: ConfigT, now: Callable[[], float]) -> None:
        self.config, self._now = config, now
        self._places = config.places()
        self._calls = Calls(self.name)
        self.availability = Availability(
            None if config.state_folder is None else config.state_folder / "availability.json",
            config.cool_down_s,
            config.cool_down_most_s,
        )
        self._memory = Memory(config.visible_within_s, self._interrupted)
        self._silent: Mapping[str, ProviderError] = {}
        """Regions that did not answer in the latest `describe`: what runs there is not known."""

    @abstractmethod
    def describe(self, deployment: str) -> Sequence[InstanceReport]:
        """See `Provider.describe`."""

    def offers(self) -> Sequence[Offer]:
        """Everything configured, with the prices of now; see `Provider.offers`."""
        now_s = self._now()
        return [self._offer(place, now_s) for place in self._places.values()]

    def launch(self, request: LaunchRequest) -> InstanceReport:
        """Rent one instance of one offer; see `Provider.launch`."""
        place = self._places.get(request.offer_id)
        if place is None:
            raise RefusedError(f"{self.name}: no offer {request.offer_id!r}: see {self.keys}")
        self._recall(request, place)
        known = self._memory.by_token(request.deployment, request.client_token)
        if known is not None:
            self._require_same(known, place)
            return known
        if place.region in self._silent:
            raise ProviderError(f"nothing is launched where nothing is seen: {self._silent[place.region]}")
        running = self._memory.running(request.deployment, place.offer_id)
        if running >= self.config.instance_types[place.instance_type].quota:
            raise QuotaError(f"{place.offer_id}: as many instances run as `quota` allows")
        self._admit(place)
        try:
            report = self._calls.one("launch", CHANGE_S, place.region, lambda: self._rent(request, place))
        except CapacityError as error:
            # A limit of ours says nothing of capacity.
            if "SpotMaxPriceTooLow" not in str(error):
                self.availability.down(place.offer_id, self._now(), str(error))
            raise
        except QuotaError as error:
            self.availability.hold(place.offer_id, self._now() + self.config.cool_down_s, str(error))
            raise
        self._require_same(report, place)
        now_s = self._now()
        if report.state.live:
            self.availability.up(report.offer_id, now_s)
        # The answer to a launch may lack tags, or hold hashes of them; we know what we sent.
        tags = {"deployment": request.deployment, "job_id": request.job_id, "task": request.task}
        report = replace(report, client_token=request.client_token, tags=tags)
        self._memory.remember(report, request.deployment, place.region, now_s, seen=False)
        return report

    def terminate(self, instance_ids: Sequence[str]) -> None:
        """End instances; see `Provider.terminate`."""
        by_region, errors = self._living(list(dict.fromkeys(instance_ids)))
        asks = {region: partial(self._end, region, names) for region, names in by_region.items()}
        answers, failed = self._calls.each("end of instances", CHANGE_S, asks)
        if self._memory.stopping([name for region in answers for name in by_region[region]]):
            self.availability.release()
        for error in (failed | errors).values():
            raise error

    # What is the cloud's own.

    @abstractmethod
    def _quote(self, place: Place, now_s: float) -> Quote:
        """Current state and price of an offer."""

    @abstractmethod
    def _rent(self, request: LaunchRequest, place: Place) -> InstanceReport:
        """Rent one, or learn of the one that this client token has rented. Raises ProviderError."""

    @abstractmethod
    def _living(self, names: Sequence[str]) -> tuple[dict[str, list[str]], dict[str, ProviderError]]:
        """Instances that still live, by region, and the errors of regions that did not answer."""

    @abstractmethod
    def _end(self, region: str, names: Sequence[str]) -> None:
        """End instances of a region. Raises ProviderError."""

    def _recall(self, request: LaunchRequest, place: Place) -> None:
        """Remember what was rented before this process began. Raises ProviderError."""

    def _admit(self, place: Place) -> None:
        """Refuse what the cloud itself would not. Raises CapacityError."""

    def _offer(self, place: Place, now_s: float) -> Offer:
        kind, spot = self.config.instance_types[place.instance_type], place.market == "spot"
        quote, history = self._quote(place, now_s), self.availability.history(place.offer_id, now_s)
        silent = self._silent.get(place.region)
        if silent is not None:
            reason = f"its region is silent: {silent}"
        else:
            reason = self.availability.left_alone(place.offer_id, now_s) or quote.reason
        return Offer(
            offer_id=place.offer_id,
            **vars(place),
            vcpus=quote.hardware.vcpus,
            memory_gib=quote.hardware.memory_gib,
            gpu=quote.hardware.gpu,
            gpus=quote.hardware.gpus,
            gpu_memory_gib=quote.hardware.gpu_memory_gib,
            speed=kind.speed,
            price_usd_hour=quote.price_usd_hour,
            on_demand_usd_hour=quote.on_demand_usd_hour,
            available=not reason,
            quota=kind.quota,
            up_ratio=history.up_ratio,
            spell_s=history.spell_s,
            mean_up_s=history.mean_up_s if spot else 0.0,
            launch_s=self.config.launch_s,
            notice_s=self.notice_s if spot else 0.0,
            free_first_s=quote.free_first_s,
            billing_minimum_s=_MINIMUM_S,
            disk_usd_month=self.config.disk_gib * quote.disk_usd_gib_month,
            reason=reason,
            price_steps=quote.price_steps,
        )

    def _require_same(self, report: InstanceReport, place: Place) -> None:
        if report.offer_id != place.offer_id:
            raise RefusedError(f"{self.name}: this client token was used for {report.offer_id}")

    def _interrupted(self, report: InstanceReport, now_s: float) -> None:
        # Not what was interrupted long ago and is seen only now.
        fresh = report.ended_s is not None and now_s - report.ended_s < self.config.cool_down_s
        if fresh and report.offer_id in self._places:
            self.availability.down(report.offer_id, now_s, "an instance was interrupted just now")
