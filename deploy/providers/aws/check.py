"""What is right and what is missing before a launch: credentials, rights, quotas, images, network.

Nothing here changes anything: launches are asked for with DryRun.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from email.utils import parsedate_to_datetime
from typing import Any

from botocore.exceptions import ClientError

from spotweave.deploy.model.instances import LaunchRequest
from spotweave.deploy.providers.aws.catalogue import Catalogue
from spotweave.deploy.providers.aws.clients import (
    DENIED,
    MAKE_SPOT_ROLE,
    REMEDY,
    SPOT_ROLE,
    Clients,
    aws_errors,
    code_of,
    denied_permission,
)
from spotweave.deploy.providers.aws.config import AwsConfig, tags_of
from spotweave.deploy.providers.aws.launch import USER_DATA_BYTES, market_options, template_data
from spotweave.deploy.providers.aws.notices import queue_url
from spotweave.deploy.providers.aws.policies import Scope, actions, scheduler
from spotweave.deploy.providers.base import ProviderError
from spotweave.deploy.providers.cloud import CloudMarket
from spotweave.deploy.providers.config import Finding, image_finding
from spotweave.deploy.providers.userdata import user_data

# The account's vCPU quotas: which one a type and a market count against.

_CODES: dict[tuple[CloudMarket, str], str] = {
    ("spot", "standard"): "L-34B43A08",
    ("on_demand", "standard"): "L-1216C47A",
    ("spot", "g"): "L-3819A6DF",
    ("on_demand", "g"): "L-DB2E81BA",
    ("spot", "p"): "L-7212CCBC",
    ("on_demand", "p"): "L-417A185B",
}
"""Codes from the console's page of EC2 quotas: standard families, G and VT, P2 to P4."""
_STANDARD = frozenset("acdhimrtz")


def quota_code(instance_type: str, market: CloudMarket) -> str | None:
    """Code of the quota; None for families that this list does not know."""
    family = instance_type.partition(".")[0]
    if family.startswith(("g", "vt")):
        return _CODES[market, "g"]
    if family.startswith(("p2", "p3", "p4")):
        return _CODES[market, "p"]
    if family[0] in _STANDARD and not family.startswith(("inf", "trn", "dl", "hpc", "mac")):
        return _CODES[market, "standard"]
    return None


_ASSUMED = re.compile(r"arn:(aws[a-z-]*):sts::(\d+):assumed-role/([^/]+)/.*")


def simulated(iam: Any, identity: str, actions: Sequence[str], resource: str = "*") -> list[str]:
    """Actions on a resource that the policies of an identity (ARN) do not allow. Raises ProviderError."""
    with aws_errors("permissions"):
        # Conditions on tags are not met by a request without tags: that is no denial.
        pages = iam.get_paginator("simulate_principal_policy").paginate(
            PolicySourceArn=role_of(identity), ActionNames=list(actions), ResourceArns=[resource]
        )
        return [
            result["EvalActionName"]
            for page in pages
            for result in page["EvaluationResults"]
            if result["EvalDecision"] == "explicitDeny"
            or (result["EvalDecision"] == "implicitDeny" and not result.get("MissingContextValues"))
        ]


def role_of(identity: str) -> str:
    """The role behind the ARN of a session; other ARNs as they are."""
    found = _ASSUMED.fullmatch(identity)
    return f"arn:{found[1]}:iam::{found[2]}:role/{found[3]}" if found else identity


_SKEW_S = 60.0
"""AWS refuses requests that are five minutes off; a clock that is a minute off is on its way there."""


def check(
    config: AwsConfig,
    session: Any = None,
    now: Callable[[], float] = time.time,
    deployment: str = "not-made-yet",
) -> Iterator[Finding]:
    """Every finding; nothing more once AWS does not accept who we are. Raises ConfigError."""
    catalogue = config.prices()
    ca_pem = config.ca_pem()
    try:
        clients = Clients(config.profile, config.endpoint_url, session)
        identity = yield from _identity(clients, next(iter(config.regions)), now)
    except ProviderError as error:
        yield Finding("credentials", "missing", str(error))
        return
    checker = _Checker(clients, config, catalogue, ca_pem, deployment)
    yield from checker.rights(identity)
    home, profile = next(iter(config.regions)), config.instance_profile
    absent = "NoSuchEntity"
    yield from checker.look(
        "instance profile", checker.profile, home, f"{profile} is not there: create it", absent
    )
    yield from checker.look(
        "spot role", checker.spot_role, home, f"{SPOT_ROLE} is not there: {MAKE_SPOT_ROLE}", absent
    )
    for region, part in config.regions.items():
        image = f"{part.image} is not there, or not shared: set `image`"
        yield from checker.look(f"{region} image", checker.image, region, image, "InvalidAMIID")
        yield from checker.look(f"{region} subnets", checker.subnets, region)
        yield from checker.look(f"{region} security group", checker.group, region)
        yield from checker.look(f"{region} types", checker.offered, region)
        yield from checker.look(f"{region} quotas", checker.quotas, region)
        queue = (
            f"{config.queues.get(region)} is not there: create it (docs/aws.md), or leave `events_queue` out"
        )
        absent = "AWS.SimpleQueueService.NonExistentQueue"
        yield from checker.look(f"{region} events queue", checker.events, region, queue, absent)
        yield from checker.look(f"{region} launch", checker.dry_run, region)


def _identity(clients: Clients, region: str, now: Callable[[], float]) -> Generator[Finding, None, str]:
    with aws_errors("aws"):
        answer = clients.get("sts", region).get_caller_identity()
    yield Finding("credentials", "right", str(answer["Arn"]))
    said = answer["ResponseMetadata"].get("HTTPHeaders", {}).get("date")
    if said is None:
        yield Finding("clock", "unknown", "the answer has no date")
    else:
        skew_s = now() - parsedate_to_datetime(said).timestamp()
        if abs(skew_s) <= _SKEW_S:
            yield Finding("clock", "right", f"{abs(skew_s):.0f} s off AWS's")
        else:
            text = f"this machine's clock is {skew_s:+.0f} s off AWS's: synchronise it (NTP)"
            yield Finding("clock", "missing", text)
    return str(answer["Arn"])


class _Checker:
    def __init__(
        self, clients: Clients, config: AwsConfig, catalogue: Catalogue, ca_pem: str | None, deployment: str
    ) -> None:
        self._clients, self._config, self._catalogue = clients, config, catalogue
        self._ca_pem, self._deployment = ca_pem, deployment
        self._roots: dict[str, str] = {}

    def rights(self, identity: str) -> Iterator[Finding]:
        partition, account = identity.split(":")[1], identity.split(":")[4]
        policy = scheduler(Scope(self._config, partition, account, self._deployment))
        denied: list[str] = []
        try:
            iam = self._clients.get("iam", next(iter(self._config.regions)))
            for part in policy["Statement"]:
                if part["Action"] == ["ec2:RunInstances"]:
                    continue  # tried in each region, with all that belongs to it
                denied += simulated(iam, identity, part["Action"], part["Resource"][0])
        except ProviderError as error:
            yield Finding("permissions", "unknown", f"cannot be simulated: {error}")
            return
        for action in dict.fromkeys(denied):
            yield Finding("permissions", "missing", f"this identity may not {action}: {REMEDY}")
        if not denied:
            yield Finding("permissions", "right", ", ".join(actions(policy)))

    def look(
        self,
        what: str,
        check: Callable[[str, str], Iterator[Finding]],
        region: str,
        text: str = "",
        code: str = "",
    ) -> Iterator[Finding]:
        """What a check finds, or why not: `text` where AWS answers with a code that begins with `code`."""
        try:
            with aws_errors(what):
                yield from check(region, what)
        except ProviderError as error:
            cause, found = error.__cause__, code_of(error.__cause__)
            if code and found.startswith(code):
                yield Finding(what, "missing", text)
            elif isinstance(cause, ClientError) and found in DENIED:
                yield Finding(what, "unknown", f"cannot be seen without {denied_permission(cause)}")
            else:
                yield Finding(what, "missing", str(error))

    def profile(self, region: str, what: str) -> Iterator[Finding]:
        name = self._config.instance_profile
        if name is None:
            yield Finding(what, "right", "none: nodes may call nothing")
            return
        iam = self._clients.get("iam", region)
        roles = iam.get_instance_profile(InstanceProfileName=name)["InstanceProfile"]["Roles"]
        if roles:
            yield Finding(what, "right", f"{name} with the role {roles[0]['RoleName']}")
        else:
            yield Finding(what, "missing", f"{name} has no role: add one")

    def spot_role(self, region: str, what: str) -> Iterator[Finding]:
        """The account's role for spot capacity, without which no spot instance can be launched."""
        if not any("spot" in kind.markets for kind in self._config.instance_types.values()):
            yield Finding(what, "right", "not needed: nothing is rented as spot")
            return
        self._clients.get("iam", region).get_role(RoleName=SPOT_ROLE)
        yield Finding(what, "right", SPOT_ROLE)

    def image(self, region: str, what: str) -> Iterator[Finding]:
        name = self._config.regions[region].image
        found = self._clients.get("ec2", region).describe_images(ImageIds=[name])["Images"]
        if not found:
            yield Finding(what, "missing", f"{name} is not there, or not shared: set `image`")
            return
        image = found[0]
        self._roots[region] = image.get("RootDeviceName", "")
        if image.get("State", "available") != "available":
            yield Finding(what, "missing", f"{name} is {image['State']}, expected available")
        wrong = [
            kind
            for kind in self._config.instance_types
            if self._catalogue.hardware(kind).architecture != image["Architecture"]
        ]
        if wrong:
            text = f"{name} is for {image['Architecture']}, which {', '.join(wrong)} cannot run: set another"
            yield Finding(what, "missing", text)
        else:
            tags = {tag["Key"]: tag["Value"] for tag in image.get("Tags", [])}
            yield image_finding(what, f"{name} ({image['Architecture']})", tags.get("spotweave"))

    def subnets(self, region: str, what: str) -> Iterator[Finding]:
        wanted = self._config.regions[region].subnets
        answer = self._clients.get("ec2", region).describe_subnets(
            Filters=[{"Name": "subnet-id", "Values": sorted(wanted.values())}]
        )
        zones = {subnet["SubnetId"]: subnet["AvailabilityZone"] for subnet in answer["Subnets"]}
        wrong = {zone: name for zone, name in wanted.items() if zones.get(name) != zone}
        for zone, name in wrong.items():
            where = f"is in {zones[name]}" if name in zones else "is not in this account"
            yield Finding(what, "missing", f"{name} {where}, expected in {zone}: set `subnets`")
        if not wrong:
            yield Finding(what, "right", ", ".join(wanted))

    def group(self, region: str, what: str) -> Iterator[Finding]:
        name = self._config.regions[region].security_group
        groups = self._clients.get("ec2", region).describe_security_groups(
            Filters=[{"Name": "group-id", "Values": [name]}]
        )["SecurityGroups"]
        if not groups:
            yield Finding(what, "missing", f"{name} is not in this account: set `security_group`")
            return
        rules = groups[0]["IpPermissions"]
        if any(
            part.get("CidrIp") == "0.0.0.0/0" or part.get("CidrIpv6") == "::/0"
            for rule in rules
            for part in (*rule.get("IpRanges", ()), *rule.get("Ipv6Ranges", ()))
        ):
            text = f"{name} lets in everyone: allow only the group itself and the scheduler"
            yield Finding(what, "missing", text)
        elif not any(
            pair.get("GroupId") == name for rule in rules for pair in rule.get("UserIdGroupPairs", ())
        ):
            text = f"{name} does not let its own members in: nodes of one job could not talk to each other"
            yield Finding(what, "missing", text)
        else:
            yield Finding(what, "right", f"{name}: nothing comes in from everywhere")

    def offered(self, region: str, what: str) -> Iterator[Finding]:
        zones = self._config.regions[region].subnets
        asked = self._clients.get("ec2", region).get_paginator("describe_instance_type_offerings")
        pages = asked.paginate(
            LocationType="availability-zone",
            Filters=[{"Name": "instance-type", "Values": sorted(self._config.instance_types)}],
        )
        offered = {
            (entry["InstanceType"], entry["Location"])
            for page in pages
            for entry in page["InstanceTypeOfferings"]
        }
        for kind in self._config.instance_types:
            lacking = [zone for zone in zones if (kind, zone) not in offered]
            if lacking:
                text = f"{kind} is not offered in {', '.join(lacking)}: leave one of them out"
                yield Finding(what, "missing", text)
            else:
                yield Finding(what, "right", f"{kind} in {', '.join(zones)}")

    def quotas(self, region: str, what: str) -> Iterator[Finding]:
        allowed: dict[str, float] = {}
        for name, kind in self._config.instance_types.items():
            for market in kind.markets:
                code = quota_code(name, market)
                if code is None:
                    yield Finding(what, "unknown", f"{name} {market}: look under Service Quotas")
                    continue
                try:
                    if code not in allowed:
                        with aws_errors(what):
                            quota = self._clients.get("service-quotas", region).get_service_quota(
                                ServiceCode="ec2", QuotaCode=code
                            )
                            allowed[code] = float(quota["Quota"]["Value"])
                except ProviderError as error:
                    yield Finding(what, "unknown", f"{name} {market}: {error}")
                    continue
                vcpus = self._catalogue.hardware(name).vcpus
                fits = int(allowed[code] // vcpus)
                said = f"{name} {market}: {allowed[code]:.0f} vCPUs allowed ({code}), {fits} at once"
                if fits == 0:
                    text = f"{said}: ask for at least {vcpus} under Service Quotas"
                    yield Finding(what, "missing", text)
                else:
                    yield Finding(what, "right", said)

    def events(self, region: str, what: str) -> Iterator[Finding]:
        queue = self._config.queues.get(region)
        if queue is None:
            yield Finding(what, "right", "none: the scheduler hears of interruptions from nodes only")
            return
        sqs = self._clients.get("sqs", region)
        url = queue_url(sqs, queue)
        arn = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
        rules = self._clients.get("events", region).list_rule_names_by_target(TargetArn=arn)
        if rules["RuleNames"]:
            yield Finding(what, "right", f"{queue}, from the rule {rules['RuleNames'][0]}")
        else:
            text = f"no rule of EventBridge sends to {queue}: create one (docs/aws.md)"
            yield Finding(what, "missing", text)

    def dry_run(self, region: str, what: str) -> Iterator[Finding]:
        """A launch of the first type, up to the point where it would begin."""
        part = self._config.regions[region]
        kind = next(iter(self._config.instance_types))
        request = LaunchRequest("check", "", self._deployment, "check", "main", "no-node-gets-this-token")
        # As a launch by template is, of which a dry run would make none.
        data = template_data(self._config, region, self._deployment, self._roots.get(region) or "/dev/sda1")
        tags = {"ResourceType": "instance", "Tags": tags_of(request, self._config)}
        arguments: dict[str, Any] = {
            **data,
            "InstanceType": kind,
            "MinCount": 1,
            "MaxCount": 1,
            "SubnetId": next(iter(part.subnets.values())),
            "UserData": user_data(request, self._config.node, self._ca_pem, "ec2", USER_DATA_BYTES),
            "TagSpecifications": [tags, *data["TagSpecifications"]],
            "DryRun": True,
        }
        if "spot" in self._config.instance_types[kind].markets:
            arguments["InstanceMarketOptions"] = market_options(None)
        try:
            with aws_errors(what):
                self._clients.get("ec2", region).run_instances(**arguments)
        except ProviderError as error:
            if code_of(error.__cause__) == "DryRunOperation":
                yield Finding(what, "right", f"{kind} could be launched (dry run)")
            else:
                yield Finding(what, "missing", str(error))
            return
        raise AssertionError("a dry run launched something")
