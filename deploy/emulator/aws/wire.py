"""The emulated account, and requests as EC2 reads them: parameters in, XML and errors out."""

from __future__ import annotations

import hashlib
import io
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal
from urllib.parse import parse_qs
from xml.sax.saxutils import escape

import botocore.session
from botocore.model import ListShape, OperationModel, ServiceModel, Shape, StructureShape
from moto.core.base_backend import BackendDict
from moto.core.exceptions import ServiceException
from moto.core.model_instances import reset_model_data
from moto.core.models import DEFAULT_ACCOUNT_ID
from moto.core.parse import EC2QueryParser
from moto.ec2.models import ec2_backends
from moto.ec2.models.amis import Ami
from moto.ec2.models.instance_types import INSTANCE_TYPES
from moto.iam.models import iam_backends
from moto.s3.models import s3_backends
from pydantic import Field, PositiveInt
from werkzeug.datastructures import MultiDict

from spotweave.deploy.emulator.config import CloudError, EmulatorConfig, PoolConfig
from spotweave.deploy.yamlfile import NotNegative, Part

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIEnvironment


Json = dict[str, Any]
Action = Callable[[str, Json], Json]  # region and parameters to an answer; raises AwsError
_CREDENTIAL = re.compile(r"Credential=([^/,\s]+)/\d{8}/([^/]+)/([^/]+)/aws4_request")
_TARGET_SERVICES = {
    "AmazonSQS": "sqs",
    "ServiceQuotasV20190624": "servicequotas",
}
_BODIES = ("application/x-www-form-urlencoded", "application/x-amz-json")


@dataclass
class Call:
    """A request, as far as it is understood without its parameters."""

    service: str
    action: str
    region: str
    access_key: str
    signed_s: float | None  # epoch seconds of the caller's clock
    body: bytes  # of a request that is not S3's
    buffered: bool  # whether `body` was read from the connection
    json: bool


def read_call(environ: WSGIEnvironment) -> Call:
    """Look at a request. The body of an S3 request stays in the connection."""
    found = _CREDENTIAL.search(environ.get("HTTP_AUTHORIZATION", ""))
    key, region, service = found.groups() if found else ("", "us-east-1", "s3")
    target = environ.get("HTTP_X_AMZ_TARGET", "")
    kind = environ.get("CONTENT_TYPE", "")
    buffered = service != "s3" and kind.startswith(_BODIES)
    body = b""
    if buffered:
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        environ["wsgi.input"] = io.BytesIO(body)
    if target:
        prefix, _, action = target.partition(".")
        service = _TARGET_SERVICES.get(prefix, service)
    elif service == "s3":
        action = _s3_action(environ)
    else:
        action = parse_qs(body.decode("latin-1")).get("Action", [""])[0]
    return Call(
        service=service,
        action=action,
        region=region,
        access_key=key,
        signed_s=_time_s(environ.get("HTTP_X_AMZ_DATE", "")),
        body=body,
        buffered=buffered,
        json=bool(target),
    )


def _time_s(text: str) -> float | None:
    try:
        return datetime.strptime(text, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC).timestamp()
    except ValueError:
        return None


def _s3_action(environ: WSGIEnvironment) -> str:
    """The permission that a request needs, of those that are about objects and buckets."""
    method = environ.get("REQUEST_METHOD", "GET")
    path = environ.get("PATH_INFO", "/").strip("/")
    query = parse_qs(environ.get("QUERY_STRING", ""), keep_blank_values=True)
    if not path:
        return "ListAllMyBuckets"
    if "/" not in path:
        if method in ("GET", "HEAD"):
            return "GetBucketLocation" if "location" in query else "ListBucket"
        return {"PUT": "CreateBucket", "DELETE": "DeleteBucket", "POST": "DeleteObject"}.get(method, "Bucket")
    if method == "DELETE":
        return "AbortMultipartUpload" if "uploadId" in query else "DeleteObject"
    return {"GET": "GetObject", "HEAD": "GetObject"}.get(method, "PutObject")


# EC2's wire format, by botocore's own service model: parameters in, XML out.

_NAMESPACE = "http://ec2.amazonaws.com/doc/2016-11-15/"
REQUEST_ID = "00000000-0000-4000-8000-000000000000"


@cache
def ec2_model() -> ServiceModel:
    """The service as the installed botocore knows it."""
    return botocore.session.get_session().get_service_model("ec2")


@cache
def _operation(action: str) -> OperationModel:
    return ec2_model().operation_model(action)


@cache
def structure(name: str) -> Shape:
    """A shape of the model."""
    return ec2_model().shape_for(name)


def parse(action: str, values: MultiDict[str, str]) -> dict[str, Any]:
    """The parameters of a request, named as boto3 names them; timestamps are naive UTC."""
    # moto redefines the model's classes only to add `is_flattened`, which EC2 does not use.
    # It looks at nothing but the values of the request.
    parser: Any = EC2QueryParser(_operation(action))
    parsed: dict[str, Any] = parser.parse({"values": values})
    return parsed


def answer(action: str, result: dict[str, Any]) -> str:
    """The XML of a result, named as boto3 names it. Raises KeyError if the model knows no such member."""
    shape = _operation(action).output_shape
    inner = "<return>true</return>" if shape is None else body(shape, result)
    return (
        f'<?xml version="1.0" encoding="UTF-8"?>\n<{action}Response xmlns="{_NAMESPACE}">'
        f"<requestId>{REQUEST_ID}</requestId>{inner}</{action}Response>"
    )


def body(shape: Shape, value: Any) -> str:
    """The XML inside an element. A `str` made by `body` passes as it is, so that it can be kept."""
    if isinstance(value, Ready):
        return value
    if isinstance(shape, StructureShape):
        members: dict[str, Shape] = shape.members
        parts = []
        for name, item in value.items():
            member = members[name]
            if item is not None:
                tag = member.serialization.get("name", name)
                parts.append(f"<{tag}>{body(member, item)}</{tag}>")
        return "".join(parts)
    if isinstance(shape, ListShape):
        tag = shape.member.serialization.get("name", "item")
        return "".join(f"<{tag}>{body(shape.member, item)}</{tag}>" for item in value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if shape.type_name == "timestamp":
        return timestamp(value)
    return escape(str(value))


class Ready(str):
    """XML that is finished."""


def timestamp(epoch_s: float) -> str:
    """`2026-05-01T12:00:00.000Z`; AWS has whole seconds here."""
    return datetime.fromtimestamp(int(epoch_s), UTC).strftime("%Y-%m-%dT%H:%M:%S.000Z")


def error(code: str, message: str) -> str:
    """The XML of an error."""
    return (
        f'<?xml version="1.0" encoding="UTF-8"?>\n<Response><Errors><Error><Code>{escape(code)}</Code>'
        f"<Message>{escape(message)}</Message></Error></Errors><RequestID>{REQUEST_ID}</RequestID></Response>"
    )


class AwsError(CloudError):
    """A refusal of AWS."""


def aws_failure(service: str, kind: str) -> AwsError:
    """How AWS says what goes wrong on demand; see `deploy.emulator.config.Failure`."""
    if kind == "throttled":
        code = {"ec2": "RequestLimitExceeded", "s3": "SlowDown"}.get(service, "ThrottlingException")
        return AwsError(code, "Request limit exceeded.", 503 if service in ("ec2", "s3") else 400)
    if kind == "internal":
        return AwsError("InternalError", "An internal error has occurred", 500)
    if kind == "unavailable":
        code = "Unavailable" if service == "ec2" else "ServiceUnavailable"
        return AwsError(code, "The server is overloaded and can't handle the request.", 503)
    return AwsError(kind, "It is so for a while.", 503 if kind in _THEIR_FAULT else 400)


_THEIR_FAULT = ("InternalError", "RequestLimitExceeded", "ServiceUnavailable", "Unavailable")


def invalid(message: str) -> AwsError:
    """A parameter's value."""
    return AwsError("InvalidParameterValue", message)


def not_found(instance_ids: list[str]) -> AwsError:
    """Instances that do not exist, or are not known yet."""
    several = len(instance_ids) > 1
    return AwsError(
        "InvalidInstanceID.NotFound",
        f"The instance ID{'s' if several else ''} '{', '.join(instance_ids)}' "
        f"do{'' if several else 'es'} not exist",
    )


def refuse_dry_run(params: Mapping[str, object]) -> None:
    """What would have succeeded is refused where only that was asked. Raises AwsError."""
    if params.get("DryRun"):
        raise AwsError("DryRunOperation", "Request would have succeeded, but DryRun flag is set.", 412)


class Account:
    """The one account. moto keeps one state per process, so there is one of these per process at a time."""

    def __init__(self, config: AwsEmulatorConfig) -> None:
        BackendDict.reset()
        reset_model_data()
        self._images = {image.image_id: image for image in config.images}
        for region in config.regions:
            for image in config.images:
                self._register(region, image)
            self._name(region)
        roles = iam_backends[DEFAULT_ACCOUNT_ID]["aws"]
        roles.create_role("AWSServiceRoleForEC2Spot", "{}", "/", None, "", [], "3600")
        for bucket in config.buckets:
            s3_backends[DEFAULT_ACCOUNT_ID]["aws"].create_bucket(bucket, config.regions[0])

    def ec2(self, region: str) -> Any:
        """The backend of moto."""
        return ec2_backends[DEFAULT_ACCOUNT_ID][region]

    def image(self, image_id: str) -> ImageConfig:
        """Raises AwsError if there is none."""
        if image_id not in self._images:
            raise AwsError("InvalidAMIID.NotFound", f"The image id '[{image_id}]' does not exist")
        return self._images[image_id]

    def zone_of(self, region: str, subnet_id: str) -> str:
        """Zone of a subnet. Raises AwsError if there is none."""
        with _refusing():
            return str(self.ec2(region).get_subnet(subnet_id).availability_zone)

    def require(self, region: str, given: Mapping[str, Any]) -> None:
        """Refuse security groups, a key pair or an instance profile that are not there. Raises AwsError."""
        backend = self.ec2(region)
        for group in given.get("SecurityGroupIds", []):
            if backend.get_security_group_from_id(group) is None:
                raise AwsError("InvalidGroup.NotFound", f"The security group '{group}' does not exist")
        name = given.get("KeyName")
        if name is not None and name not in backend.key_pairs:
            raise AwsError("InvalidKeyPair.NotFound", f"The key pair '{name}' does not exist")
        profiles = iam_backends[DEFAULT_ACCOUNT_ID]["aws"].instance_profiles.values()
        for field, value in given.get("IamInstanceProfile", {}).items():
            if not any(value in (profile.arn, profile.name) for profile in profiles):
                raise invalid(
                    f"Value ({value}) for parameter iamInstanceProfile.{field.lower()} is invalid. "
                    "Invalid IAM Instance Profile name"
                )

    def template(self, region: str, asked: dict[str, Any]) -> dict[str, Any]:
        """Data of a launch template, by its name. Raises AwsError."""
        with _refusing():
            template = self.ec2(region).describe_launch_templates(
                template_names=[asked["LaunchTemplateName"]]
            )[0]
            return dict(template.get_version(asked.get("Version", template.default_version_number)).data)

    def zone_ids(self, region: str) -> dict[str, str]:
        """`use1-az1` by `us-east-1a`."""
        return {zone.name: zone.zone_id for zone in self.ec2(region).describe_availability_zones()}

    def _name(self, region: str) -> None:
        """Give the default network ids that a configuration can name: moto draws them again each time.

        The default group lets its own members in, as in a real account.
        """
        backend = self.ec2(region)
        for zone, subnet in backend.get_default_subnets().items():
            del backend.subnets[zone][subnet.id]
            subnet.id = subnet_of(zone)
            backend.subnets[zone][subnet.id] = subnet
        group = backend.get_default_security_group()
        del backend.groups[group.vpc_id][group.id]
        group.id = group.group_id = group_of(region)
        backend.groups[group.vpc_id][group.id] = group
        backend.authorize_security_group_ingress(
            group.id, "-1", "-1", "-1", [], source_groups=[{"GroupId": group.id}], vpc_id=group.vpc_id
        )

    def _register(self, region: str, image: ImageConfig) -> None:
        backend = self.ec2(region)
        backend.amis[image.image_id] = Ami(
            backend,
            image.image_id,
            name=image.name,
            public=True,
            virtualization_type="hvm",
            architecture=image.architecture,
            root_device_type="ebs",
            root_device_name=image.root_device,
            region_name=f"{region}a",
        )
        backend.amis[image.image_id].add_tags({"spotweave": version("spotweave")})


def subnet_of(zone: str) -> str:
    """Id of the default subnet of a zone: always the same."""
    return f"subnet-{hashlib.sha256(zone.encode()).hexdigest()[:17]}"


def group_of(region: str) -> str:
    """Id of the default security group of a region: always the same."""
    return f"sg-{hashlib.sha256(region.encode()).hexdigest()[:17]}"


@contextmanager
def _refusing() -> Iterator[None]:
    """The refusals of moto are those of AWS."""
    try:
        yield
    except ServiceException as error:
        raise AwsError(error.code, error.message) from error


def allowed(denied: Sequence[str], permission: str) -> bool:
    """Whether no pattern of the configuration denies the permission."""
    return not any(fnmatchcase(permission, pattern) for pattern in denied)


def simulate(denied: Sequence[str], params: Mapping[str, str]) -> dict[str, str]:
    """SimulatePrincipalPolicy: the answer is `{"xml": text}`, because IAM speaks XML of its own."""
    asked = [value for key, value in params.items() if key.startswith("ActionNames.member.")]
    results = "".join(
        f"<member><EvalActionName>{name}</EvalActionName><EvalResourceName>*</EvalResourceName>"
        f"<EvalDecision>{'allowed' if allowed(denied, name) else 'implicitDeny'}</EvalDecision>"
        "<MatchedStatements/><MissingContextValues/></member>"
        for name in asked
    )
    return {
        "xml": '<SimulatePrincipalPolicyResponse xmlns="https://iam.amazonaws.com/doc/2010-05-08/">'
        f"<SimulatePrincipalPolicyResult><EvaluationResults>{results}</EvaluationResults>"
        "<IsTruncated>false</IsTruncated></SimulatePrincipalPolicyResult>"
        f"<ResponseMetadata><RequestId>{REQUEST_ID}</RequestId></ResponseMetadata>"
        "</SimulatePrincipalPolicyResponse>"
    }


# Configuration of the emulated AWS: a YAML or JSON file.


Bucket = Literal["standard", "g", "p", "inf"]  # which of the account's vCPU limits a type counts against


class AwsPoolConfig(PoolConfig):
    """A pool of EC2; the price on demand is also the default of a spot request's maximum price."""

    zone: Annotated[str, Field(pattern=r"^[a-z]{2}(-[a-z]+)+-\d[a-z]$")]
    instance_type: Annotated[str, Field(pattern=r"^[a-z0-9-]+\.[a-z0-9-]+$")]

    @property
    def vcpus(self) -> int:
        """As moto's copy of AWS's own list has them."""
        return int(INSTANCE_TYPES[self.instance_type]["VCpuInfo"]["DefaultVCpus"])


class ImageConfig(Part):
    """A machine image that exists."""

    image_id: Annotated[str, Field(pattern=r"^ami-[0-9a-f]{8,17}$")]
    name: str = "emulated"
    architecture: Literal["x86_64", "arm64"] = "x86_64"
    root_device: str = "/dev/xvda"
    root_gib: PositiveInt = 8


class QuotaConfig(Part):
    """vCPUs that may run at once, per region."""

    standard: Annotated[int, Field(ge=0)] = 256
    g: Annotated[int, Field(ge=0)] = 64
    p: Annotated[int, Field(ge=0)] = 64
    inf: Annotated[int, Field(ge=0)] = 64


class AwsEmulatorConfig(EmulatorConfig):
    """The configuration of an emulated AWS."""

    disks: ClassVar[str] = "gp3_usd_gib_month"
    state: Path = Path("emulated-aws")
    pools: Annotated[tuple[AwsPoolConfig, ...], Field(min_length=1)]  # what can be rented
    images: tuple[ImageConfig, ...] = ()  # machine images besides those that moto knows
    access_keys: tuple[str, ...] | None = None  # key ids that are accepted; None: any
    denied: tuple[str, ...] = ()  # actions that the caller may not do, such as `ec2:RunInstances` or `s3:*`
    spot_quota: QuotaConfig = QuotaConfig()  # of the account
    on_demand_quota: QuotaConfig = QuotaConfig()  # of the account
    # of disks, by region; every region with pools must be there
    gp3_usd_gib_month: dict[str, NotNegative] = Field(
        default={"us-east-1": 0.08, "us-east-2": 0.08, "us-west-2": 0.08}
    )
    notice_s: NotNegative = 120.0
    rebalance_s: NotNegative = 60.0  # the rebalance recommendation comes so long before the notice
    # name of a queue that is made at the start and gets the EC2 events; None: only rules made through the API
    # are served
    events_queue: str | None = None

    def limit(self, *, spot: bool, instance_type: str) -> int:
        """Virtual cores that may run at once of all types that share this type's limit."""
        quota = self.spot_quota if spot else self.on_demand_quota
        return int(getattr(quota, bucket_of(instance_type)))


def bucket_of(instance_type: str) -> Bucket:
    """The vCPU limit that a type counts against.

    https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/ec2-instance-quotas.html
    """
    family = instance_type.partition(".")[0]
    if family.startswith("inf"):
        return "inf"
    if family.startswith("vt") or family[0] == "g":
        return "g"
    return "p" if family[0] == "p" else "standard"
