"""An emulator in virtual time, and clients and providers that talk to it without a network."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from botocore.awsrequest import AWSResponse
from botocore.config import Config

from spotweave.deploy.emulator.aws.emulator import AwsEmulator
from spotweave.deploy.emulator.aws.wire import AwsEmulatorConfig, group_of, subnet_of
from spotweave.deploy.emulator.config import FaultConfig
from spotweave.deploy.providers.aws.config import AwsConfig
from spotweave.deploy.providers.aws.provider import AwsProvider
from spotweave.envs.traces.importers import region_of
from tests.deploy.emulator.transport import START_S, in_process, trace

IMAGE = "ami-0123456789abcdef0"
TYPE, ZONE = "g4dn.xlarge", "us-east-1a"
SPOT, ON_DEMAND = f"aws/{ZONE}/{TYPE}/spot", f"aws/{ZONE}/{TYPE}/on_demand"
POOL = {"zone": ZONE, "instance_type": TYPE, "spot_usd_hour": 0.2, "on_demand_usd_hour": 0.526}


def region(name: str, zones: Sequence[str]) -> dict[str, Any]:
    """What a provider is told of one, and of those of the zones that lie there."""
    subnets = {zone: subnet_of(zone) for zone in zones if region_of(zone) == name}
    return {"image": IMAGE, "security_group": group_of(name), "subnets": subnets}


def renting(**changes: Any) -> AwsConfig:
    """What a provider rents in the emulator's zones."""
    content = {
        "regions": {"us-east-1": region("us-east-1", (ZONE, "us-east-1b"))},
        "instance_types": {TYPE: {"quota": 9}},
        "node": {"scheduler_url": "https://scheduler.example:8443"},
    }
    return AwsConfig.model_validate({**content, **changes})


Answer = dict[str, Any] | str | Callable[[dict[str, Any]], dict[str, Any]]


class Clients:
    """boto3's clients take a second to make: each is made once and talks to the cloud of the moment."""

    def __init__(self) -> None:
        self.cloud: Cloud | None = None
        self._session = in_process(self._serve)
        self._session.events.register("provide-client-params", self._note)
        self._session.events.register("before-call", self._answer)
        self._made: dict[tuple[str, str, bool], Any] = {}

    def client(
        self, service: str, region_name: str = "us-east-1", config: Config | None = None, **_: Any
    ) -> Any:
        """A test's own, without a configuration, tries once; a provider's as often as it is told to."""
        key = (service, region_name, config is None)
        if key not in self._made:
            made = config or Config(retries={"total_max_attempts": 1})
            self._made[key] = self._session.client(service, region_name=region_name, config=made)
        return self._made[key]

    def _serve(self, environ: Any, start_response: Any) -> Any:
        assert self.cloud is not None
        return self.cloud.emulator(environ, start_response)

    def _note(self, params: dict[str, Any], context: dict[str, Any], **_: Any) -> None:
        context["asked"] = dict(params)

    def _answer(self, model: Any, context: dict[str, Any], **_: Any) -> tuple[Any, Any] | None:
        assert self.cloud is not None
        self.cloud.called.add(f"{model.service_model.signing_name}:{model.name}")
        return self.cloud.instead(model.name, context["asked"])


CLIENTS = Clients()


class Cloud:
    """One emulator and how boto3 sees it.

    Attributes:
        answers: by operation, what it answers instead, perhaps to what was asked: always, or once, if it is
            the code of an error.
        asked: parameters by operation, the latest last.
        called: operations with their services, as policies name them.
    """

    def __init__(self, folder: Path, **changes: Any) -> None:
        content: dict[str, Any] = {
            "clock": "virtual",
            "start_s": START_S,
            "pools": [POOL, {**POOL, "zone": "us-east-1b", "spot_usd_hour": 0.3}],
            "images": [{"image_id": IMAGE}],
            "events_queue": "events",
            "folder": folder,
            **changes,
        }
        self.answers: dict[str, Answer] = {}
        self.asked: dict[str, list[dict[str, Any]]] = {}
        self.called: set[str] = set()
        self.emulator = AwsEmulator(AwsEmulatorConfig.model_validate(content))
        self.session = CLIENTS
        self.session.cloud = self
        self.ec2 = self.session.client("ec2")

    def instead(self, operation: str, asked: dict[str, Any]) -> tuple[Any, Any] | None:
        """What boto3 gets without a call. None: the emulator answers."""
        self.asked.setdefault(operation, []).append(asked)
        given = self.answers.get(operation)
        if given is None:
            return None
        if callable(given):
            given = given(asked)
        about = {"HTTPStatusCode": 200, "HTTPHeaders": {}, "RequestId": "instead"}
        if isinstance(given, str):
            del self.answers[operation]
            about["HTTPStatusCode"] = 400
            given = {"Error": {"Code": given, "Message": "It is so once."}}
        return AWSResponse("", about["HTTPStatusCode"], {}, None), {"ResponseMetadata": about, **given}

    def provider(self, **changes: Any) -> AwsProvider:
        """One that rents here, as a scheduler that (re)starts makes it."""
        return AwsProvider(renting(**changes), self.session, self.emulator.world.clock.now)

    def run(self, **changes: Any) -> dict[str, Any]:
        """One instance in zone a, on demand."""
        given: dict[str, Any] = {
            "ImageId": IMAGE,
            "InstanceType": TYPE,
            "MinCount": 1,
            "MaxCount": 1,
            "Placement": {"AvailabilityZone": ZONE},
            **changes,
        }
        instance: dict[str, Any] = self.ec2.run_instances(**given)["Instances"][0]
        return instance

    def spot(self, *, zone: str = ZONE, **options: Any) -> str:
        """The id of one spot instance."""
        market = {"MarketType": "spot", "SpotOptions": options}
        name: str = self.run(InstanceMarketOptions=market, Placement={"AvailabilityZone": zone})["InstanceId"]
        return name

    def see(self, name: str) -> dict[str, Any]:
        answer = self.ec2.describe_instances(InstanceIds=[name])
        instance: dict[str, Any] = answer["Reservations"][0]["Instances"][0]
        return instance

    def state(self, name: str) -> str:
        found: str = self.see(name)["State"]["Name"]
        return found

    def after(self, seconds: float) -> None:
        self.emulator.advance(seconds)

    def now_s(self) -> float:
        return self.emulator.world.now_s()

    def go_wrong(self, **spell: Any) -> None:
        """From now on, instead of what went wrong until now; nothing, if nothing is said."""
        self.emulator.faults.change(FaultConfig.model_validate({"spells": [spell] if spell else []}))

    def take(self, name: str) -> None:
        """EC2 takes an instance away, and tells its end by the request only."""
        world = self.emulator.world
        world.interrupt(world.instances[name], 0.0)
        world.instances[name].transition = "Server.SpotInstanceTermination"


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[..., Cloud]]:
    clouds: list[Cloud] = []

    def build(**changes: Any) -> Cloud:
        clouds.append(Cloud(tmp_path, **changes))
        return clouds[-1]

    yield build
    for cloud in clouds:
        cloud.emulator.close()


@pytest.fixture
def cloud(make: Callable[..., Cloud]) -> Cloud:
    return make()


@pytest.fixture
def recorded(make: Callable[..., Cloud], tmp_path: Path) -> Callable[..., Cloud]:
    """A cloud whose zone a follows rows of (seconds, available, price)."""

    def build(rows: list[tuple[int, int, float]], **changes: Any) -> Cloud:
        pool = {**POOL, "spot_usd_hour": None, "trace": trace(tmp_path, "a", rows)}
        return make(pools=[pool], **changes)

    return build
