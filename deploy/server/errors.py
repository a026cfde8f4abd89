"""Errors as clients see them: a status and {"error": one line}."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import ValidationError
from starlette.exceptions import HTTPException

from spotweave.deploy.store.errors import NotFoundError, StoreError, StoreUnavailableError

_LENGTH_MOST = 600
_SHOWN = 3  # mistakes of one request


class Refusal(Exception):  # noqa: N818 - it is an answer, not a failure
    """A request that is refused."""

    def __init__(self, status: int, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.headers = dict(headers or {})


def explain(error: ValidationError | RequestValidationError) -> str:
    """What is wrong with a request; what it holds is not repeated but where it is."""
    found = error.errors()
    lines = []
    for one in found[:_SHOWN]:
        place = ".".join(str(part) for part in one["loc"])
        message = str(one["msg"]).removeprefix("Value error, ")
        lines.append(f"{place}: {message}" if place else message)
    more = f"; and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    return "; ".join(lines) + more


def error_response(status: int, message: str, headers: Mapping[str, str] | None = None) -> JSONResponse:
    """The one form of all errors: a line of bounded length."""
    line = " ".join(message.split())
    line = line if len(line) <= _LENGTH_MOST else line[: _LENGTH_MOST - 1] + "…"
    return JSONResponse({"error": line}, status, dict(headers or {}))


def install(app: FastAPI) -> None:
    """Give every expected error its status."""

    @app.exception_handler(Refusal)
    async def refused(_: Request, error: Refusal) -> JSONResponse:
        return error_response(error.status, str(error), error.headers)

    @app.exception_handler(RequestValidationError)
    async def invalid(_: Request, error: RequestValidationError) -> JSONResponse:
        return error_response(HTTPStatus.UNPROCESSABLE_ENTITY, explain(error))

    @app.exception_handler(HTTPException)
    async def http(request: Request, error: HTTPException) -> JSONResponse:
        message = str(error.detail)
        if error.status_code == HTTPStatus.NOT_FOUND:
            message = f"there is no {request.url.path}: see /openapi.json for what there is"
        elif error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
            message = f"{request.method} is not possible on {request.url.path}: see /openapi.json"
        return error_response(error.status_code, message, error.headers)

    @app.exception_handler(StoreError)
    async def store(_: Request, error: StoreError) -> JSONResponse:
        if isinstance(error, NotFoundError):
            return error_response(HTTPStatus.NOT_FOUND, str(error))
        if isinstance(error, StoreUnavailableError):
            return error_response(HTTPStatus.SERVICE_UNAVAILABLE, str(error), {"Retry-After": "5"})
        return error_response(HTTPStatus.CONFLICT, str(error))
