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

from deploy.model.instances import LaunchRequest
from deploy.providers.aws import names
from deploy.providers.aws.catalogue import Catalogue
from deploy.providers.aws.clients import Clients
from deploy.providers.aws.config import AwsConfig
from deploy.providers.aws.errors import (
    DENIED,
    MAKE_SPOT_ROLE,
    REMEDY,
    SPOT_ROLE,
    aws_errors,
    code_of,
    denied_permission,
)
from deploy.providers.aws.launch import USER_DATA_BYTES, market_options, template_data
from deploy.providers.aws.notices import queue_url
from deploy.providers.aws.offers import quota_code, vcpus_allowed
from deploy.providers.aws.policies import Scope, actions, scheduler
from deploy.providers.base import ProviderError
from deploy.providers.config import Finding
from deploy.providers.userdata import user_data

# Whether the scheduler's identity is allowed what it must be.

_ASSUMED = re.compile(r"arn:(aws[a-z-]*):sts::(\d+):assumed-role/([^/]+)/.*")


def simulated(iam: Any, identity: str, actions: Sequence[str], resource: str = "*") -> list[str]:
    """Those of some actions that the identity's policies do not allow.

    Args:
        iam: client.
        identity: ARN, as sts:GetCallerIdentity gives it.
        actions: such as "ec2:RunInstances".
        resource: ARN of what they are done to.

    Raises:
        ProviderError: if it cannot be simulated.
    """
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
    """Everything, one finding after the other; nothing more once AWS does not accept who we are.

    Args:
        config: what is to be rented.
        session: of boto3; None: a new one.
        now: epoch seconds.
        deployment: its id, by whose tag its policy knows what it may launch and end.

    Raises:
        ConfigError: if the price list or the certificate cannot be used.
    """
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
    yield from checker.profile()
    yield from checker.spot_role()
    for region in config.regions:
        yield from checker.image(region)
        yield from checker.subnets(region)
        yield from checker.group(region)
        yield from checker.offered(region)
        yield from checker.quotas(region)
        yield from checker.events(region)
        yield from checker.dry_run(region)


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
        self._clients = clients
        self._config = config
        self._catalogue = catalogue
        self._ca_pem = ca_pem
        self._deployment = deployment
        self._roots: dict[str, str] = {}

    def rights(self, identity: str) -> Iterator[Finding]:
        """What the identity's policies allow, by simulation."""
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

    def profile(self) -> Iterator[Finding]:
        """The nodes' instance profile."""
        name = self._config.instance_profile
        if name is None:
            yield Finding("instance profile", "right", "none: nodes may call nothing")
            return
        try:
            with aws_errors("instance profile"):
                iam = self._clients.get("iam", next(iter(self._config.regions)))
                found = iam.get_instance_profile(InstanceProfileName=name)["InstanceProfile"]
        except ProviderError as error:
            yield self._failed("instance profile", error, f"{name} is not there: create it", "NoSuchEntity")
            return
        roles = [role["RoleName"] for role in found["Roles"]]
        if roles:
            yield Finding("instance profile", "right", f"{name} with the role {roles[0]}")
        else:
            yield Finding("instance profile", "missing", f"{name} has no role: add one")

    def spot_role(self) -> Iterator[Finding]:
        """The account's role for spot capacity, without which no spot instance can be launched."""
        what = "spot role"
        if not any("spot" in kind.markets for kind in self._config.instance_types.values()):
            yield Finding(what, "right", "not needed: nothing is rented as spot")
            return
        try:
            with aws_errors(what):
                self._clients.get("iam", next(iter(self._config.regions))).get_role(RoleName=SPOT_ROLE)
        except ProviderError as error:
            yield self._failed(what, error, f"{SPOT_ROLE} is not there: {MAKE_SPOT_ROLE}", "NoSuchEntity")
            return
        yield Finding(what, "right", SPOT_ROLE)

    def image(self, region: str) -> Iterator[Finding]:
        """Whether the image is there and fits the types."""
        name, what = self._config.regions[region].image, f"{region} image"
        try:
            with aws_errors(what):
                found = self._clients.get("ec2", region).describe_images(ImageIds=[name])["Images"]
        except ProviderError as error:
            yield self._failed(
                what, error, f"{name} is not there, or not shared: set `image`", "InvalidAMIID"
            )
            return
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
            yield Finding(what, "right", f"{name} ({image['Architecture']})")

    def subnets(self, region: str) -> Iterator[Finding]:
        """Whether each subnet is in its zone."""
        wanted, what = self._config.regions[region].subnets, f"{region} subnets"
        try:
            with aws_errors(what):
                answer = self._clients.get("ec2", region).describe_subnets(
                    Filters=[{"Name": "subnet-id", "Values": sorted(wanted.values())}]
                )
        except ProviderError as error:
            yield self._failed(what, error)
            return
        zones = {subnet["SubnetId"]: subnet["AvailabilityZone"] for subnet in answer["Subnets"]}
        wrong = 0
        for zone, name in wanted.items():
            if zones.get(name) != zone:
                wrong += 1
                where = f"is in {zones[name]}" if name in zones else "is not in this account"
                yield Finding(what, "missing", f"{name} {where}, expected in {zone}: set `subnets`")
        if not wrong:
            yield Finding(what, "right", ", ".join(wanted))

    def group(self, region: str) -> Iterator[Finding]:
        """Whether the security group lets in nobody from anywhere."""
        name, what = self._config.regions[region].security_group, f"{region} security group"
        try:
            with aws_errors(what):
                answer = self._clients.get("ec2", region).describe_security_groups(
                    Filters=[{"Name": "group-id", "Values": [name]}]
                )
        except ProviderError as error:
            yield self._failed(what, error)
            return
        if not answer["SecurityGroups"]:
            yield Finding(what, "missing", f"{name} is not in this account: set `security_group`")
            return
        rules = answer["SecurityGroups"][0]["IpPermissions"]
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

    def offered(self, region: str) -> Iterator[Finding]:
        """Which zones have which types."""
        zones, what = self._config.regions[region].subnets, f"{region} types"
        try:
            with aws_errors(what):
                pages = (
                    self._clients.get("ec2", region)
                    .get_paginator("describe_instance_type_offerings")
                    .paginate(
                        LocationType="availability-zone",
                        Filters=[{"Name": "instance-type", "Values": sorted(self._config.instance_types)}],
                    )
                )
                offered = {
                    (entry["InstanceType"], entry["Location"])
                    for page in pages
                    for entry in page["InstanceTypeOfferings"]
                }
        except ProviderError as error:
            yield self._failed(what, error)
            return
        for kind in self._config.instance_types:
            lacking = [zone for zone in zones if (kind, zone) not in offered]
            if lacking:
                text = f"{kind} is not offered in {', '.join(lacking)}: leave one of them out"
                yield Finding(what, "missing", text)
            else:
                yield Finding(what, "right", f"{kind} in {', '.join(zones)}")

    def quotas(self, region: str) -> Iterator[Finding]:
        """Whether at least one instance of each type and market fits the account's vCPU quotas."""
        what = f"{region} quotas"
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
                            client = self._clients.get("service-quotas", region)
                            allowed[code] = vcpus_allowed(client, code)
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

    def events(self, region: str) -> Iterator[Finding]:
        """Whether the queue of EC2's events is there, and a rule sends to it."""
        queue, what = self._config.queues.get(region), f"{region} events queue"
        if queue is None:
            yield Finding(what, "right", "none: the scheduler hears of interruptions from nodes only")
            return
        try:
            with aws_errors(what):
                sqs = self._clients.get("sqs", region)
                url = queue_url(sqs, queue)
                asked = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])
                arn = asked["Attributes"]["QueueArn"]
                rules = self._clients.get("events", region).list_rule_names_by_target(TargetArn=arn)
        except ProviderError as error:
            text = f"{queue} is not there: create it (docs/aws.md), or leave `events_queue` out"
            yield self._failed(what, error, text, "AWS.SimpleQueueService.NonExistentQueue")
            return
        if rules["RuleNames"]:
            yield Finding(what, "right", f"{queue}, from the rule {rules['RuleNames'][0]}")
        else:
            text = f"no rule of EventBridge sends to {queue}: create one (docs/aws.md)"
            yield Finding(what, "missing", text)

    def dry_run(self, region: str) -> Iterator[Finding]:
        """A launch of the first type, up to the point where it would begin."""
        part, what = self._config.regions[region], f"{region} launch"
        kind = next(iter(self._config.instance_types))
        request = LaunchRequest("check", "", self._deployment, "check", "main", "no-node-gets-this-token")
        # As a launch by template is, of which a dry run would make none.
        data = template_data(self._config, region, self._deployment, self._roots.get(region) or "/dev/sda1")
        tags = {"ResourceType": "instance", "Tags": names.tags_of(request, self._config)}
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
            yield self._dry(what, kind, error)
            return
        raise AssertionError("a dry run launched something")

    def _dry(self, what: str, kind: str, error: ProviderError) -> Finding:
        cause = error.__cause__
        if isinstance(cause, Exception) and code_of(cause) == "DryRunOperation":
            return Finding(what, "right", f"{kind} could be launched (dry run)")
        return Finding(what, "missing", str(error))

    def _failed(self, what: str, error: ProviderError, text: str = "", code: str = "") -> Finding:
        """A look that failed: something that is not there, or a right that is missing."""
        cause = error.__cause__
        found = code_of(cause) if isinstance(cause, Exception) else ""
        if code and found.startswith(code):
            return Finding(what, "missing", text)
        if isinstance(cause, ClientError) and found in DENIED:
            return Finding(what, "unknown", f"cannot be seen without {denied_permission(cause)}")
        return Finding(what, "missing", str(error))
