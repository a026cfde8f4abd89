"""Every failure has its kind, and one line that says what to do."""

from __future__ import annotations

import pytest
from botocore import exceptions as sdk

from deploy.providers.aws.errors import aws_errors, denied_permission, translated
from deploy.providers.base import CapacityError, ProviderError, QuotaError, RefusedError, ThrottledError


def client_error(code: str, message: str = "It said.", operation: str = "RunInstances") -> sdk.ClientError:
    return sdk.ClientError({"Error": {"Code": code, "Message": message}}, operation)


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("InsufficientInstanceCapacity", CapacityError),
        ("SpotMaxPriceTooLow", CapacityError),
        ("InsufficientVolumeCapacity", CapacityError),
        ("AuthFailure.ServiceLinkedRoleCreationNotPermitted", CapacityError),
        ("SpotInstanceCountExceeded", QuotaError),
        ("NetworkInterfaceLimitExceeded", QuotaError),
        ("OperationNotPermitted", RefusedError),
        ("MaxSpotInstanceCountExceeded", QuotaError),
        ("VcpuLimitExceeded", QuotaError),
        ("InstanceLimitExceeded", QuotaError),
        ("RequestLimitExceeded", ThrottledError),
        ("Throttling", ThrottledError),
        ("UnauthorizedOperation", RefusedError),
        ("AuthFailure", RefusedError),
        ("InvalidAMIID.NotFound", RefusedError),
        ("Unsupported", RefusedError),
        ("RequestExpired", RefusedError),
        ("ExpiredToken", RefusedError),
        ("IdempotentParameterMismatch", RefusedError),
        ("InvalidParameterValue", RefusedError),
        ("InternalError", ProviderError),
        ("503", ProviderError),
        ("SomethingNew", ProviderError),
    ],
)
def test_a_code_has_its_kind_and_one_line(code: str, kind: type[ProviderError]) -> None:
    made = translated(client_error(code), "aws us-east-1a: launch of m5.large")
    assert type(made) is kind
    assert str(made).startswith("aws us-east-1a: launch of m5.large: ")
    assert "\n" not in str(made)


def test_the_missing_permission_is_named_without_the_encoded_screenful() -> None:
    message = (
        "You are not authorized to perform this operation. User: arn:aws:iam::1:user/x is not authorized to "
        "perform: iam:PassRole on resource: arn:aws:iam::1:role/n because no policy allows it. "
        "Encoded authorization failure message: " + 500 * "A"
    )
    error = client_error("UnauthorizedOperation", message)
    assert denied_permission(error) == "iam:PassRole"
    text = str(translated(error, "here"))
    assert "may not iam:PassRole" in text
    assert "AAAA" not in text


def test_a_permission_that_is_not_said_is_the_calls_own() -> None:
    assert denied_permission(client_error("UnauthorizedOperation")) == "ec2:RunInstances"
    assert denied_permission(client_error("AccessDenied", operation="GetProducts")) == "pricing:GetProducts"


def test_an_account_that_has_never_used_spot_capacity_is_told_what_to_do() -> None:
    made = str(translated(client_error("AuthFailure.ServiceLinkedRoleCreationNotPermitted"), "here"))
    assert "aws iam create-service-linked-role --aws-service-name spot.amazonaws.com" in made


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("RequestExpired", "Request has expired."),
        ("SignatureDoesNotMatch", "Signature expired: 20260101T000000Z is now earlier than 20260101T001000Z"),
        ("RequestTimeTooSkewed", ""),
    ],
)
def test_a_wrong_clock_is_told_from_a_wrong_key(code: str, message: str) -> None:
    assert "clock" in str(translated(client_error(code, message), "here"))
    wrong_key = client_error("SignatureDoesNotMatch", "The request signature we calculated does not match")
    assert "secret access key" in str(translated(wrong_key, "here"))


@pytest.mark.parametrize(
    ("error", "kind", "word"),
    [
        (sdk.NoCredentialsError(), RefusedError, "aws configure"),
        (sdk.ProfileNotFound(profile="x"), RefusedError, "x"),
        (sdk.EndpointConnectionError(endpoint_url="https://e"), ProviderError, "https://e"),
        (sdk.ReadTimeoutError(endpoint_url="https://e"), ProviderError, "https://e"),
        (sdk.ParamValidationError(report="Missing\nImageId"), RefusedError, "Missing ImageId"),
    ],
)
def test_what_no_service_answered_is_named(error: Exception, kind: type[ProviderError], word: str) -> None:
    with pytest.raises(kind) as caught, aws_errors("aws us-east-1"):
        raise error
    assert type(caught.value) is kind
    assert word in str(caught.value)
    assert "\n" not in str(caught.value)
