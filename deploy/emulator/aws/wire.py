"""EC2's wire format, by botocore's own service model: parameters in, XML out."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import cache
from typing import Any
from xml.sax.saxutils import escape

import botocore.session
from botocore.model import ListShape, OperationModel, ServiceModel, Shape, StructureShape
from moto.core.parse import EC2QueryParser
from werkzeug.datastructures import MultiDict

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
    """The XML of a result, named as boto3 names it.

    Raises:
        KeyError: if the model knows no such member.
    """
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
