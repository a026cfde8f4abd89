"""An emulated AWS account, and the WSGI application that serves it: our layer in front of moto's."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl

from moto.core.models import DEFAULT_ACCOUNT_ID
from moto.ec2.models.instance_types import INSTANCE_TYPES
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.datastructures import MultiDict
from werkzeug.wrappers import Response

from spotweave.deploy.emulator.aws import wire
from spotweave.deploy.emulator.aws.instances import InstanceActions
from spotweave.deploy.emulator.aws.market import MarketActions
from spotweave.deploy.emulator.aws.wire import (
    Account,
    AwsEmulatorConfig,
    AwsError,
    Call,
    allowed,
    read_call,
    simulate,
)
from spotweave.deploy.emulator.aws.world import Ec2World, make_queue
from spotweave.deploy.emulator.server import Emulator
from spotweave.deploy.model.clock import Clock
from spotweave.deploy.yamlfile import ConfigError

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIEnvironment


class AwsEmulator(Emulator):
    """One at a time per process, because moto's state is the process's.

    Raises ConfigError if a recording cannot be used, or AWS has no such instance type.
    """

    free_first_s = 3600.0

    def __init__(self, config: AwsEmulatorConfig, clock: Clock | None = None) -> None:
        for pool in config.pools:
            if pool.instance_type not in INSTANCE_TYPES:
                raise ConfigError(f"pools: AWS has no instance type {pool.instance_type!r}")
        super().__init__()
        self.config: AwsEmulatorConfig = config
        self._moto = DomainDispatcherApplication(create_backend_app)
        self.account = Account(config)
        self.world: Ec2World = Ec2World(config, clock)
        # What moto has not, or not truly; moto answers the rest.
        self.actions = {
            **InstanceActions(self.world, self.account).table,
            **MarketActions(self.world, self.account).table,
            ("iam", "SimulatePrincipalPolicy"): lambda region, params: simulate(config.denied, params),
        }
        if config.events_queue is not None:
            for region in config.regions:
                make_queue(region, config.events_queue)

    def environment(self, url: str) -> dict[str, str | None]:
        """See Emulator: the SDK finds these before all else."""
        return {
            "AWS_ENDPOINT_URL": url,
            "AWS_ACCESS_KEY_ID": "emulated",
            "AWS_SECRET_ACCESS_KEY": "emulated",
            "AWS_PROFILE": None,
            "AWS_SESSION_TOKEN": None,
        }

    def answer(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """See Emulator."""
        call = read_call(environ)
        try:
            spell = self._admit(call)
            own = self.actions.get((call.service, call.action))
            if own is not None:
                answer = self._own(call, _emptied(own) if spell == "empty" else own)
                self.faults.after(call.service, call.action, spell)
                return answer(environ, start_response)
            if f"{call.service}:{call.action}" in _NOT_PLAYED:
                raise AwsError("UnsupportedOperation", f"The emulator does not play {call.action}.")
        except AwsError as error:
            return _refusal(call, error)(environ, start_response)
        return self._pass_on(call, environ, start_response, spell)

    def _admit(self, call: Call) -> str:
        """Everything that AWS looks at before it does anything; see `Faults.before`. Raises AwsError."""
        config, world, faults = self.config, self.world, self.faults
        with world.lock:
            world.settle()
            self.calls[f"{call.service}:{call.action}"] += 1
            self._check_time(call, faults.config.clock_skew_s)
            if config.access_keys is not None and call.access_key not in config.access_keys:
                raise _unknown_key(call)
            faults.throttle(call.service, world.clock.now())
            permission = f"{call.service}:{call.action}"
            if not allowed(config.denied, permission):
                raise _denied(call, permission)
            return faults.before(call.service, call.action, call.region, world.clock.now())

    @staticmethod
    def _check_time(call: Call, skew_s: float) -> None:
        if call.signed_s is None:
            return
        apart_s = datetime.now(UTC).timestamp() + skew_s - call.signed_s
        if abs(apart_s) <= _SKEW_S:
            return
        if call.service == "s3":
            text = "The difference between the request time and the current time is too large."
            raise AwsError("RequestTimeTooSkewed", text, 403)
        if call.service == "ec2":
            raise AwsError("RequestExpired", "Request has expired.", 400)
        how = "Signature expired" if apart_s > 0 else "Signature not yet current"
        raise AwsError(
            "SignatureDoesNotMatch",
            f"{how}: {_basic(call.signed_s)} is now {'earlier' if apart_s > 0 else 'later'} "
            f"than {_basic(call.signed_s + apart_s)} (5 min.)",
            403,
        )

    def _own(self, call: Call, act: wire.Action) -> Response:
        if call.service == "ec2":
            params = wire.parse(call.action, MultiDict(parse_qsl(call.body.decode(), keep_blank_values=True)))
        elif call.service == "iam":
            params = dict(parse_qsl(call.body.decode()))
        else:
            params = json.loads(call.body or b"{}")
        with self.world.lock:
            result = act(call.region, params)
            if call.service == "ec2":
                return _answer(wire.answer(call.action, result), _XML)
        if call.service == "iam":
            return _answer(result["xml"], "text/xml")
        return _answer(json.dumps(result), _JSON)

    def _pass_on(
        self, call: Call, environ: WSGIEnvironment, start_response: StartResponse, spell: str
    ) -> Iterable[bytes]:
        if call.action == "ReceiveMessage" and self.config.clock == "virtual":
            # A real wait would stop virtual time.
            asked = json.loads(call.body or b"{}") | {"WaitTimeSeconds": 0}
            call.body = json.dumps(asked).encode()
            environ["CONTENT_LENGTH"] = str(len(call.body))
        if call.buffered:
            environ["wsgi.input"] = io.BytesIO(call.body)
        result: Iterable[bytes] = self._moto(environ, start_response)
        self.faults.after(call.service, call.action, spell)
        return result


_SKEW_S = 300.0
_NOT_PLAYED = frozenset(
    {
        "ec2:CancelSpotInstanceRequests",
        "ec2:CreateFleet",
        "ec2:DescribeInstanceStatus",
        "ec2:DescribeVolumes",
        "ec2:RequestSpotFleet",
        "ec2:RequestSpotInstances",
        "ec2:StartInstances",
        "ec2:StopInstances",
        "pricing:GetProducts",
    }
)
"""What is not emulated. moto would answer from its own state, without our instances, or not at all."""
_XML, _JSON = "text/xml;charset=UTF-8", "application/x-amz-json-1.1"


def _emptied(act: wire.Action) -> wire.Action:
    def emptied(region: str, params: wire.Json) -> wire.Json:
        return {name: [] for name, value in act(region, params).items() if isinstance(value, list)}

    return emptied


def _answer(content: str | bytes, kind: str, status: int = 200) -> Response:
    return Response(content, status, {"x-amzn-RequestId": wire.REQUEST_ID}, content_type=kind)


def _refusal(call: Call, error: AwsError) -> Response:
    if call.service == "ec2":
        return _answer(wire.error(error.code, error.message), _XML, error.status)
    if call.json:
        return _answer(json.dumps({"__type": error.code, "message": error.message}), _JSON, error.status)
    what = f"<Code>{error.code}</Code><Message>{error.message}</Message>"
    if call.service == "s3":
        return _answer(f"<Error>{what}</Error>", "application/xml", error.status)
    text = f"<ErrorResponse><Error><Type>Sender</Type>{what}</Error><RequestId>{wire.REQUEST_ID}</RequestId>"
    return _answer(f"{text}</ErrorResponse>", "text/xml", error.status)


def _unknown_key(call: Call) -> AwsError:
    if call.service == "ec2":
        return AwsError("AuthFailure", "AWS was not able to validate the provided access credentials", 401)
    if call.service == "s3":
        text = "The AWS Access Key Id you provided does not exist in our records."
        return AwsError("InvalidAccessKeyId", text, 403)
    text = "The security token included in the request is invalid."
    if call.json:
        return AwsError("UnrecognizedClientException", text, 400)
    return AwsError("InvalidClientTokenId", text, 403)


def _denied(call: Call, permission: str) -> AwsError:
    who = f"User: arn:aws:iam::{DEFAULT_ACCOUNT_ID}:user/emulated is not authorized to perform: {permission}"
    if call.service == "ec2":
        about = json.dumps({"allowed": False, "action": permission})
        encoded = base64.urlsafe_b64encode(about.encode()).decode()
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
