"""The WSGI application: our layer in front of moto's."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

from moto.core.models import DEFAULT_ACCOUNT_ID
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.datastructures import MultiDict

from deploy.emulator.aws import wire
from deploy.emulator.aws.account import allowed
from deploy.emulator.aws.emulator import AwsEmulator
from deploy.emulator.aws.wire import AwsError, Call, read_call
from deploy.emulator.server import PREFIX, Control

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIEnvironment

_SKEW_S = 300.0
_NOT_PLAYED = frozenset(
    {
        "CancelSpotInstanceRequests",
        "CreateFleet",
        "DescribeInstanceStatus",
        "DescribeVolumes",
        "RequestSpotFleet",
        "RequestSpotInstances",
        "StartInstances",
        "StopInstances",
    }
)
"""EC2 actions that are not emulated. moto would answer them from its own state, without our instances."""
Answer = tuple[int, str, bytes]
Action = Callable[[str, dict[str, Any]], dict[str, Any]]


class App:
    """Answers every service of the account, and the control interface under /_emulator/.

    Raises (when called):
        LostAnswerError: if the answer shall never arrive: the server closes the connection.
    """

    def __init__(self, emulator: AwsEmulator) -> None:
        self._emulator = emulator
        self._control = Control(emulator)
        self._moto = DomainDispatcherApplication(create_backend_app)

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """Answer one request."""
        if environ.get("PATH_INFO", "").startswith(PREFIX):
            status, content = self._control.answer(environ)
            return _send(start_response, (status, "application/json", content))
        call = read_call(environ)
        try:
            spell = self._admit(call)
            own = self._emulator.actions.get((call.service, call.action))
            if own is not None:
                answer = self._own(call, _emptied(own) if spell == "empty" else own)
                self._emulator.faults.after(call.service, call.action, spell)
                return _send(start_response, answer)
            if call.service == "ec2" and call.action in _NOT_PLAYED:
                raise AwsError("UnsupportedOperation", f"The emulator does not play {call.action}.")
        except AwsError as error:
            return _send(start_response, _refusal(call, error))
        return self._pass_on(call, environ, start_response, spell)

    def _admit(self, call: Call) -> str:
        """Everything that AWS looks at before it does anything; see `Faults.before`. Raises AwsError."""
        emulator = self._emulator
        config = emulator.config
        with emulator.world.lock:
            emulator.world.settle()
            faults = emulator.faults
            emulator.calls[f"{call.service}:{call.action}"] += 1
            self._check_time(call, faults.config.clock_skew_s)
            if config.access_keys is not None and call.access_key not in config.access_keys:
                raise _unknown_key(call)
            faults.throttle(call.service, emulator.world.clock.now())
            permission = f"{call.service}:{call.action}"
            if not allowed(config.denied, permission):
                raise _denied(call, permission)
            return faults.before(call.service, call.action, call.region, emulator.world.clock.now())

    @staticmethod
    def _check_time(call: Call, skew_s: float) -> None:
        if call.signed_s is None:
            return
        apart_s = datetime.now(UTC).timestamp() + skew_s - call.signed_s
        if abs(apart_s) <= _SKEW_S:
            return
        if call.service == "s3":
            raise AwsError(
                "RequestTimeTooSkewed",
                "The difference between the request time and the current time is too large.",
                403,
            )
        if call.service == "ec2":
            raise AwsError("RequestExpired", "Request has expired.", 400)
        how = "Signature expired" if apart_s > 0 else "Signature not yet current"
        raise AwsError(
            "SignatureDoesNotMatch",
            f"{how}: {_basic(call.signed_s)} is now {'earlier' if apart_s > 0 else 'later'} "
            f"than {_basic(call.signed_s + apart_s)} (5 min.)",
            403,
        )

    def _own(self, call: Call, act: Action) -> Answer:
        if call.service == "ec2":
            params = wire.parse(call.action, MultiDict(parse_qsl(call.body.decode(), keep_blank_values=True)))
        elif call.service == "iam":
            params = dict(parse_qsl(call.body.decode()))
        else:
            params = json.loads(call.body or b"{}")
        with self._emulator.world.lock:
            result = act(call.region, params)
            if call.service == "ec2":
                return 200, "text/xml;charset=UTF-8", wire.answer(call.action, result).encode()
        if call.service == "iam":
            return 200, "text/xml", result["xml"].encode()
        return 200, "application/x-amz-json-1.1", json.dumps(result).encode()

    def _pass_on(
        self, call: Call, environ: WSGIEnvironment, start_response: StartResponse, spell: str
    ) -> Iterable[bytes]:
        if call.action == "ReceiveMessage" and self._emulator.config.clock == "virtual":
            # A real wait would stop virtual time.
            asked = json.loads(call.body or b"{}") | {"WaitTimeSeconds": 0}
            call.body = json.dumps(asked).encode()
            environ["CONTENT_LENGTH"] = str(len(call.body))
        if call.buffered:
            environ["wsgi.input"] = io.BytesIO(call.body)
        result: Iterable[bytes] = self._moto(environ, start_response)
        self._emulator.faults.after(call.service, call.action, spell)
        return result


def _emptied(act: Action) -> Action:
    """It finds nothing."""

    def emptied(region: str, params: dict[str, Any]) -> dict[str, Any]:
        return {name: [] for name, value in act(region, params).items() if isinstance(value, list)}

    return emptied


def _send(start_response: StartResponse, answer: Answer) -> Iterable[bytes]:
    status, kind, content = answer
    headers = [("Content-Type", kind), ("Content-Length", str(len(content)))]
    headers.append(("x-amzn-RequestId", wire.REQUEST_ID))
    start_response(f"{status} {'OK' if status < 400 else 'Error'}", headers)
    return [content]


def _refusal(call: Call, error: AwsError) -> Answer:
    """In the protocol of the service."""
    if call.service == "ec2":
        return error.status, "text/xml;charset=UTF-8", wire.error(error.code, error.message).encode()
    if call.service == "s3":
        text = f"<Error><Code>{error.code}</Code><Message>{error.message}</Message></Error>"
        return error.status, "application/xml", text.encode()
    if call.json:
        content = json.dumps({"__type": error.code, "message": error.message})
        return error.status, "application/x-amz-json-1.1", content.encode()
    text = (
        f"<ErrorResponse><Error><Type>Sender</Type><Code>{error.code}</Code>"
        f"<Message>{error.message}</Message></Error><RequestId>{wire.REQUEST_ID}</RequestId></ErrorResponse>"
    )
    return error.status, "text/xml", text.encode()


def _unknown_key(call: Call) -> AwsError:
    if call.service == "ec2":
        return AwsError("AuthFailure", "AWS was not able to validate the provided access credentials", 401)
    if call.service == "s3":
        return AwsError(
            "InvalidAccessKeyId", "The AWS Access Key Id you provided does not exist in our records.", 403
        )
    if call.json:
        return AwsError(
            "UnrecognizedClientException", "The security token included in the request is invalid.", 400
        )
    return AwsError("InvalidClientTokenId", "The security token included in the request is invalid.", 403)


def _denied(call: Call, permission: str) -> AwsError:
    who = f"User: arn:aws:iam::{DEFAULT_ACCOUNT_ID}:user/emulated is not authorized to perform: {permission}"
    if call.service == "ec2":
        encoded = base64.urlsafe_b64encode(
            json.dumps({"allowed": False, "action": permission}).encode()
        ).decode()
        return AwsError(
            "UnauthorizedOperation",
            f"You are not authorized to perform this operation. {who} on resource: * because no "
            f"identity-based policy allows the {permission} action. "
            f"Encoded authorization failure message: {encoded}",
            403,
        )
    code = "AccessDeniedException" if call.json else "AccessDenied"
    return AwsError(code, f"{who} because no identity-based policy allows the {permission} action", 403)


def _basic(epoch_s: float) -> str:
    return datetime.fromtimestamp(epoch_s, UTC).strftime("%Y%m%dT%H%M%SZ")
