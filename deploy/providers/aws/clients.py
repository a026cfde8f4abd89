"""Clients of AWS services: one per service and region, credentials from the SDK's own chain."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import boto3
from botocore import exceptions as sdk
from botocore.config import Config

from spotweave.deploy.providers.base import (
    CapacityError,
    ProviderError,
    QuotaError,
    RefusedError,
    ThrottledError,
)

_CONNECT_S = 3.0
_COMMON = Config(max_pool_connections=20, user_agent_extra="spotweave")
_SMALL = _COMMON.merge(
    Config(
        retries={"mode": "standard", "total_max_attempts": 3}, connect_timeout=_CONNECT_S, read_timeout=8.0
    )
)
"""The SDK backs off between its attempts, with jitter; what fails then is the loop's to try again."""
_LARGE = _COMMON.merge(
    Config(
        retries={"mode": "standard", "total_max_attempts": 5}, connect_timeout=_CONNECT_S, read_timeout=30.0
    )
)
"""Weights go to S3, and none of the loop's passes waits for that."""


class Clients:
    """Makes each client once, as the SDK's chain or profile says. Safe to use from several threads.

    Raises RefusedError if there is no such profile.
    """

    def __init__(
        self, profile: str | None = None, endpoint_url: str | None = None, session: Any = None
    ) -> None:
        with aws_errors("aws"):
            self._session = session if session is not None else boto3.Session(profile_name=profile)
        self._endpoint_url = endpoint_url
        self._clients: dict[tuple[str, str], Any] = {}
        self._lock = threading.Lock()

    def get(self, service: str, region: str) -> Any:
        """A client. Raises ProviderError."""
        # Sessions are not safe to share between threads; clients are.
        with self._lock, aws_errors(f"aws {region}"):
            key = (service, region)
            if key not in self._clients:
                self._clients[key] = self._session.client(
                    service,
                    region_name=region,
                    endpoint_url=self._endpoint_url,
                    config=_LARGE if service == "s3" else _SMALL,
                )
            return self._clients[key]

    def close(self) -> None:
        """Let go of connections."""
        with self._lock:
            for client in self._clients.values():
                client.close()
            self._clients.clear()


def _codes(text: str) -> frozenset[str]:
    return frozenset(text.split())


CAPACITY = _codes("""
    InsufficientInstanceCapacity InsufficientHostCapacity InsufficientCapacity
    InsufficientReservedInstanceCapacity InsufficientFreeAddressesInSubnet InsufficientAddressCapacity
    InsufficientVolumeCapacity ReservationCapacityExceeded SpotMaxPriceTooLow UnfulfillableCapacity
""")
QUOTA = _codes("""
    AddressLimitExceeded MaxFleetCountExceeded MaxSpotInstanceCountExceeded
    MaxSpotFleetRequestCountExceeded NetworkInterfaceLimitExceeded ResourceCountExceeded
    SpotInstanceCountExceeded VcpuLimitExceeded InstanceLimitExceeded FleetInstanceLimitExceeded
    VolumeLimitExceeded MaxIOPSLimitExceeded
""")
THROTTLED = _codes("""
    RequestLimitExceeded Throttling ThrottlingException ThrottledException TooManyRequestsException
    RequestThrottled EC2ThrottledException SlowDown
""")
NO_SPOT_ROLE = "AuthFailure.ServiceLinkedRoleCreationNotPermitted"
"""The account has never used spot capacity, and this identity may not make the role that it takes."""
SPOT_ROLE = "AWSServiceRoleForEC2Spot"
MAKE_SPOT_ROLE = "run aws iam create-service-linked-role --aws-service-name spot.amazonaws.com"
DENIED = frozenset({"UnauthorizedOperation", "AccessDenied", "AccessDeniedException"})
CREDENTIALS = _codes("""
    AuthFailure InvalidClientTokenId UnrecognizedClientException InvalidAccessKeyId OptInRequired
    PendingVerification Blocked
""")
EXPIRED = frozenset({"ExpiredToken", "ExpiredTokenException", "RequestExpired"})
REMEDY = "attach what spotweave clouds policy prints, or add it"  # for a permission that is missing
_SIGNATURE = frozenset(
    {"SignatureDoesNotMatch", "RequestExpired", "RequestTimeTooSkewed", "InvalidSignatureException"}
)
_SKEWED = re.compile(r"signature (expired|not yet current)|has expired|too skewed|is now earlier", re.I)
_LASTING = frozenset({"EncryptedVolumesNotSupported", "IncorrectState", "OperationNotPermitted"})
_UNCERTAIN = frozenset({"InternalError", "InternalFailure", "ServiceUnavailable", "Unavailable"})
_PERMISSION = re.compile(r"not authorized to perform: ([a-z0-9-]+:[A-Za-z]+)(?: on resource: (\S+))?")
_ENCODED = re.compile(r"\s*Encoded authorization failure message:.*", re.S)

_REMEDIES = (
    ("Unsupported", "this zone does not have the type (check says which has): leave one of them out"),
    ("InvalidAMIID.", "the image is not there in this region, or not shared with this account: set `image`"),
    ("InvalidSubnetID.", "set `subnets` to subnets of this region"),
    ("InvalidGroup.", "set `security_group` to one of the subnets' VPC"),
    ("InvalidKeyPair.", "create the key pair in this region, or leave `key_name` out"),
    ("InvalidIamInstanceProfile", "create the instance profile, or leave `instance_profile` out"),
    ("IdempotentParameterMismatch", "this client token was used for another request: use a new one"),
)


def code_of(error: BaseException | None) -> str:
    """The provider's own code; "" for failures that came from elsewhere."""
    return str(error.response.get("Error", {}).get("Code", "")) if isinstance(error, sdk.ClientError) else ""


def denied_permission(error: sdk.ClientError) -> str:
    """Which permission was missing, as in a policy: "ec2:RunInstances"."""
    found = _PERMISSION.search(str(error.response.get("Error", {}).get("Message", "")))
    name = error.operation_name
    service = next((one for one, operations in _OPERATIONS.items() if name in operations), "ec2")
    return found[1] if found else f"{service}:{_CALLED_OTHERWISE.get(name, name)}"


def translated(error: Exception, doing: str) -> ProviderError:
    """The error of the interface that an error of botocore is, which came of `doing` something."""
    kind, text = _answered(error) if isinstance(error, sdk.ClientError) else _local(error)
    return kind(f"{doing}: {text}")


def _answered(error: sdk.ClientError) -> tuple[type[ProviderError], str]:
    code, text = code_of(error), str(error.response.get("Error", {}).get("Message", ""))
    # The encoded half is a screenful, and decoding it needs a permission of its own.
    message = " ".join(_ENCODED.sub("", text).split())
    if code in CAPACITY:
        return CapacityError, f"{code}: {message}"
    if code == NO_SPOT_ROLE:
        # As if there were none: on demand can be rented all the same.
        return CapacityError, f"{code}: this account has no role for spot capacity: {MAKE_SPOT_ROLE}"
    if code in QUOTA:
        return QuotaError, f"{code}: {message} Ask for more under Service Quotas, or use less"
    if code in THROTTLED:
        return ThrottledError, f"{code}: too many requests; they are tried again more slowly"
    if code in DENIED:
        return RefusedError, f"this identity may not {denied_permission(error)}: {REMEDY}"
    if code in _SIGNATURE and (code != "SignatureDoesNotMatch" or _SKEWED.search(message)):
        return RefusedError, f"the clock of this machine is wrong ({code}): synchronise it (NTP)"
    if code == "SignatureDoesNotMatch":
        return RefusedError, "the secret access key does not belong to the key id: copy it again"
    if code in EXPIRED:
        return RefusedError, "the credentials have expired: sign in again (aws sso login)"
    if code in CREDENTIALS:
        return (
            RefusedError,
            f"AWS does not accept these credentials ({code}): see aws sts get-caller-identity",
        )
    for start, remedy in _REMEDIES:
        if code.startswith(start) or (start == "InvalidIamInstanceProfile" and start in message):
            return RefusedError, f"{code}: {message} Remedy: {remedy}"
    if code in _UNCERTAIN or not code or code.isdigit():
        return ProviderError, f"AWS failed ({code or 'no code'}): {message}"
    if code.startswith(("Invalid", "Missing", "Unknown", "Malformed")) or code in _LASTING:
        return RefusedError, f"{code}: {message}"
    return ProviderError, f"{code}: {message}"


def _local(error: Exception) -> tuple[type[ProviderError], str]:
    """Failures that no service answered with."""
    text = " ".join(str(error).split())
    if isinstance(error, sdk.NoCredentialsError):
        return RefusedError, "no AWS credentials: run aws configure, or set AWS_PROFILE"
    if isinstance(error, sdk.PartialCredentialsError | sdk.ProfileNotFound | sdk.ConfigParseError):
        return RefusedError, f"AWS credentials are not complete: {text}"
    if isinstance(error, sdk.CredentialRetrievalError | sdk.TokenRetrievalError | sdk.SSOError):
        return RefusedError, f"AWS credentials cannot be had: {text} Sign in again (aws sso login)"
    if isinstance(error, sdk.ParamValidationError):
        return RefusedError, f"the request is malformed: {text}"
    if isinstance(error, sdk.NoRegionError | sdk.InvalidRegionError | sdk.UnknownServiceError):
        return RefusedError, text
    if isinstance(error, sdk.EndpointConnectionError | sdk.ConnectTimeoutError | sdk.ProxyConnectionError):
        return ProviderError, f"AWS cannot be reached: {text} See the network, or endpoint_url"
    if isinstance(error, sdk.SSLError):
        return ProviderError, f"AWS cannot be reached safely: {text}"
    return ProviderError, f"no answer from AWS: {text}"


@contextmanager
def aws_errors(doing: str) -> Iterator[None]:
    """Turns what the SDK raises inside into the interface's errors."""
    try:
        yield
    except (sdk.ClientError, sdk.BotoCoreError, sdk.HTTPClientError) as error:
        raise translated(error, doing) from error


_OPERATIONS = {
    "sts": ("GetCallerIdentity",),
    "iam": ("GetInstanceProfile", "GetRole", "SimulatePrincipalPolicy"),
    "servicequotas": ("GetServiceQuota",),
    "pricing": ("GetProducts",),
    "sqs": ("GetQueueUrl", "GetQueueAttributes", "ReceiveMessage", "DeleteMessageBatch"),
    "events": ("ListRuleNamesByTarget",),
    "s3": ("PutObject", "GetObject", "DeleteObject", "ListObjectsV2"),
}
_CALLED_OTHERWISE = {"ListObjectsV2": "ListBucket"}
"""The permission, where it is not called as the operation."""
