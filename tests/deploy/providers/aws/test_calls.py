"""An endpoint that hangs holds nobody up for longer than is said; every failure has its kind and one line."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import boto3
import pytest
from botocore import exceptions as sdk

from deploy.providers import calls, cloud
from deploy.providers.aws import notices, prices, provider
from deploy.providers.aws.config import AwsConfig
from deploy.providers.aws.errors import aws_errors, denied_permission, translated
from deploy.providers.aws.provider import AwsProvider
from deploy.providers.base import CapacityError, ProviderError, QuotaError, RefusedError, ThrottledError
from deploy.providers.calls import AGAIN_S, MOST_LATE, Calls
from tests.deploy.providers.aws.fake import REGION, TYPE, FakeAws, make_config
from tests.deploy.providers.contract import DEPLOYMENT, request

SOON_S = 0.3
LONG_S = 30.0
"""No test waits so long; what hangs would."""
SPOT = f"aws/{REGION}a/{TYPE}/spot"


def hang(until: threading.Event) -> Callable[[], str]:
    def ask() -> str:
        until.wait(LONG_S)
        return "late"

    return ask


def test_one_that_hangs_costs_its_time_and_the_others_nothing() -> None:
    until, asked = threading.Event(), Calls("aws")
    began_s = time.monotonic()
    answers, errors = asked.each("look", SOON_S, {"a": hang(until), "b": lambda: "now"})
    assert time.monotonic() - began_s < LONG_S / 2
    assert answers == {"b": "now"}
    assert str(errors["a"]) == "aws a: look: no answer within 0.3 s"
    until.set()


def test_one_that_hangs_is_not_asked_again_while_it_does() -> None:
    until, now_s = threading.Event(), [0.0]
    asked = Calls("aws", lambda: now_s[0])
    began = []

    def ask() -> str:
        began.append(now_s[0])
        return hang(until)()

    for _ in range(3):
        with pytest.raises(ProviderError):
            asked.one("look", SOON_S, "a", ask)
    assert began == [0.0]
    # Something else may be asked there, and the same elsewhere.
    assert asked.one("change", SOON_S, "a", lambda: "x") == asked.one("look", SOON_S, "b", lambda: "x")
    for k in range(1, MOST_LATE + 3):
        now_s[0] = k * AGAIN_S
        with pytest.raises(ProviderError):
            asked.one("look", SOON_S / 10, "a", ask)
    assert len(began) == MOST_LATE
    until.set()
    deadline_s = time.monotonic() + LONG_S
    while time.monotonic() < deadline_s:
        try:
            assert asked.one("look", LONG_S, "a", lambda: "again") == "again"
            break
        except ProviderError:
            time.sleep(0.01)
    else:
        raise AssertionError("it is never asked again")


def test_one_whose_late_call_failed_is_left_alone_for_a_while() -> None:
    until, now_s = threading.Event(), [0.0]
    asked = Calls("aws", lambda: now_s[0])
    ended = threading.Event()

    def fail() -> str:
        until.wait(LONG_S)
        ended.set()
        raise ProviderError("time-out")

    with pytest.raises(ProviderError, match="no answer within"):
        asked.one("look", SOON_S, "a", fail)
    until.set()
    assert ended.wait(LONG_S)
    with pytest.raises(ProviderError, match="left alone"):
        asked.one("look", LONG_S, "a", lambda: "again")
    now_s[0] = AGAIN_S
    assert asked.one("look", LONG_S, "a", lambda: "again") == "again"


def test_kinds_of_errors_stay_what_they_are() -> None:
    def refuse() -> str:
        raise CapacityError("none")

    def stumble() -> str:
        raise KeyError("what")

    with pytest.raises(CapacityError, match="none"):
        Calls("aws").one("launch", LONG_S, "a", refuse)
    _, errors = Calls("aws").each("look", LONG_S, {"a": stumble, "b": refuse})
    assert str(errors["a"]) == "aws a: look: KeyError: 'what'"
    assert isinstance(errors["b"], CapacityError)


@contextmanager
def endpoint(trickles: bool) -> Iterator[str]:
    """It accepts, and never answers; or it answers a byte each tenth of a second, without an end."""
    ending = threading.Event()
    taken = socket.create_server(("127.0.0.1", 0))
    taken.settimeout(0.1)

    def trickle(connection: socket.socket) -> None:
        with connection:
            try:
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
                while not ending.wait(0.1):
                    connection.sendall(b" ")
            except OSError:
                pass

    def accept() -> None:
        kept = []
        while not ending.is_set():
            try:
                connection, _ = taken.accept()
            except TimeoutError:
                continue
            kept.append(connection)
            if trickles:
                threading.Thread(target=trickle, args=(connection,), daemon=True).start()
        for connection in kept:
            connection.close()

    accepting = threading.Thread(target=accept, daemon=True)
    accepting.start()
    try:
        yield f"http://127.0.0.1:{taken.getsockname()[1]}"
    finally:
        ending.set()
        accepting.join()
        taken.close()


@pytest.fixture
def config(aws: FakeAws, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AwsConfig:
    """Short time limits."""
    for module in (calls, cloud, notices, prices, provider):
        for name in ("LOOK_S", "QUEUE_S", "CHANGE_S"):
            if hasattr(module, name):
                monkeypatch.setattr(module, name, SOON_S)
    return make_config(tmp_path, events_queue="spotweave-events")


@pytest.mark.real
@pytest.mark.parametrize("trickles", [False, True])
def test_no_method_waits_for_an_endpoint_that_hangs(config: AwsConfig, trickles: bool) -> None:
    with endpoint(trickles) as url:
        session = boto3.Session(aws_access_key_id="x", aws_secret_access_key="x")
        hung = AwsProvider(config.model_copy(update={"endpoint_url": url}), session)
        began_s = time.monotonic()
        with pytest.raises(ProviderError, match=r"spot prices: no answer within"):
            hung.offers()
        with pytest.raises(ProviderError, match=r"instances: no answer within"):
            hung.describe(DEPLOYMENT)
        with pytest.raises(ProviderError, match=r"nothing is seen"):
            hung.launch(request(SPOT))
        with pytest.raises(ProviderError, match=r"no answer within"):
            hung.terminate(["i-0123456789abcdef0"])
        fresh = AwsProvider(config.model_copy(update={"endpoint_url": url}), session)
        with pytest.raises(ProviderError, match=r"launch: no answer within"):
            fresh.launch(request(SPOT))
        assert time.monotonic() - began_s < LONG_S
        # Ending the process does not wait for them either.
        assert all(one.daemon for one in threading.enumerate() if one.name.startswith("aws "))


def test_a_queue_that_hangs_only_warns(aws: FakeAws, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    until = threading.Event()
    monkeypatch.setattr(notices, "QUEUE_S", SOON_S)
    monkeypatch.setattr(notices, "queue_url", lambda sqs, queue: hang(until)())
    made = AwsProvider(make_config(tmp_path, events_queue="spotweave-events"), aws.session())
    launched = made.launch(request(SPOT))
    assert [one.instance_id for one in made.describe(DEPLOYMENT)] == [launched.instance_id]
    until.set()


def client_error(code: str, message: str = "It said.", operation: str = "RunInstances") -> sdk.ClientError:
    return sdk.ClientError({"Error": {"Code": code, "Message": message}}, operation)


KINDS: dict[type[ProviderError], str] = {
    CapacityError: (
        "InsufficientInstanceCapacity SpotMaxPriceTooLow InsufficientVolumeCapacity "
        "AuthFailure.ServiceLinkedRoleCreationNotPermitted"
    ),
    QuotaError: (
        "SpotInstanceCountExceeded NetworkInterfaceLimitExceeded MaxSpotInstanceCountExceeded "
        "VcpuLimitExceeded InstanceLimitExceeded"
    ),
    RefusedError: (
        "OperationNotPermitted UnauthorizedOperation AuthFailure InvalidAMIID.NotFound "
        "Unsupported RequestExpired ExpiredToken IdempotentParameterMismatch "
        "InvalidParameterValue"
    ),
    ThrottledError: "RequestLimitExceeded Throttling",
    ProviderError: "InternalError 503 SomethingNew",
}


@pytest.mark.parametrize(
    ("code", "kind"), [(code, kind) for kind, codes in KINDS.items() for code in codes.split()]
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
    # One that is not said is the call's own.
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
