"""Bodies of requests: bounded before they are parsed, and parsed strictly."""

from __future__ import annotations

import re
from http import HTTPStatus
from typing import Any, TypeVar

import anyio
from fastapi import Request
from pydantic import BaseModel, ValidationError
from pydantic.json_schema import models_json_schema
from starlette.requests import ClientDisconnect

from deploy.server.errors import Refusal, explain

REFERENCE = "#/components/schemas/{model}"
_GRACE_S = 10.0
_LEAST_BYTES_S = 64 << 10
"""A body that comes more slowly would hold what others wait for."""
_DIGITS = 300
"""Any whole number with this many digits is a float as well."""
_MANY_DIGITS = re.compile(rb"[0-9]{%d}" % (_DIGITS + 1))
# Possessive, and an end that may be missing: nothing that is sent makes it go back and try again.
_TOKENS = re.compile(
    rb'(?P<text>"[^"\\]*+(?:\\.[^"\\]*+)*+"?)|(?P<number>[0-9]{%d})' % (_DIGITS + 1), re.DOTALL
)
_ZERO = re.compile(rb"(?<!\\)(?:\\\\)*+\\u0000")
_Model = TypeVar("_Model", bound=BaseModel)


def expected_size(request: Request, limit: int) -> int:
    """How large a body will be, in bytes; `limit` where its client does not say or it will be refused."""
    said = request.headers.get("content-length", "")
    return min(int(said[:19]), limit) if said.isdecimal() else limit


async def read_body(request: Request, limit: int, within_s: float) -> bytes:
    """The whole body.

    Args:
        request: of which nothing was read.
        limit: bytes; one more and it is refused, as soon as that is known.
        within_s: it must have arrived after so long, and before that at some speed.

    Raises:
        Refusal: if it is too large, too slow, or not JSON by its content type.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        # A form of a page in a browser cannot say this without asking first.
        raise Refusal(
            HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "expected JSON: send the header Content-Type: application/json"
        )
    too_large = Refusal(
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"the body is larger than {limit} bytes: send less at once"
    )
    said = request.headers.get("content-length", "")
    if said.isdecimal() and int(said[:19]) > limit:
        raise too_large
    found = bytearray()
    try:
        began_s = anyio.current_time()
        with anyio.fail_after(min(within_s, _GRACE_S)) as scope:
            async for chunk in request.stream():
                found += chunk
                if len(found) > limit:
                    raise too_large
                scope.deadline = began_s + min(within_s, _GRACE_S + len(found) / _LEAST_BYTES_S)
    except TimeoutError as error:
        raise Refusal(
            HTTPStatus.REQUEST_TIMEOUT, "the body came too slowly: send it faster, or send less at once"
        ) from error
    except ClientDisconnect as error:
        raise Refusal(HTTPStatus.BAD_REQUEST, "the connection was closed before the body had come") from error
    return bytes(found)


def parse(model: type[_Model], body: bytes) -> _Model:
    """A model from JSON, strictly.

    Raises:
        Refusal: if it does not fit; the first things that are wrong, in one line.
    """
    _refuse_what_breaks_things(body)
    try:
        return model.model_validate_json(body)
    except ValidationError as error:
        raise Refusal(HTTPStatus.UNPROCESSABLE_ENTITY, explain(error)) from error


def _refuse_what_breaks_things(body: bytes) -> None:
    """Refuse JSON that no model needs and that code behind it may not expect.

    Raises:
        Refusal: for a number that no float can hold, or a zero character, which no database and no process
            takes. Nesting is bounded by the parser.
    """
    # Nearly all bodies have neither, which is quickly seen; only others are looked through in earnest.
    if _MANY_DIGITS.search(body) is None and b"\\u0000" not in body:
        return
    for token in _TOKENS.finditer(body):
        if token["text"] is None:
            raise Refusal(
                HTTPStatus.UNPROCESSABLE_ENTITY,
                f"a number of more than {_DIGITS} digits: expected numbers of a usual size",
            )
        if _ZERO.search(token["text"]) is not None:
            raise Refusal(
                HTTPStatus.UNPROCESSABLE_ENTITY, "a text holds a zero character (\\u0000): leave it out"
            )


def described(model: type[BaseModel], examples: dict[str, Any]) -> dict[str, Any]:
    """What OpenAPI says of a request with such a body (for `openapi_extra`)."""
    shown = {name: {"value": value} for name, value in examples.items()}
    schema = {"$ref": REFERENCE.format(model=model.__name__)}
    return {
        "requestBody": {
            "required": True,
            "content": {"application/json": {"schema": schema, "examples": shown}},
        }
    }


def definitions(models: list[type[BaseModel]]) -> dict[str, Any]:
    """Schemas of body models and all that they are made of, by name."""
    _, made = models_json_schema([(model, "validation") for model in models], ref_template=REFERENCE)
    found: dict[str, Any] = made["$defs"]
    return found
