"""The route at which a rented instance's node shows its certificate and gets its token."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, Field
from starlette.concurrency import run_in_threadpool

from spotweave.deploy.model.clock import Clock
from spotweave.deploy.security.keys import SecurityError, node_certificate
from spotweave.deploy.security.tokens import may_join
from spotweave.deploy.server import bodies
from spotweave.deploy.server.errors import Refusal
from spotweave.deploy.server.views import ERRORS
from spotweave.deploy.store.store import Store
from spotweave.deploy.yamlfile import Part

_MOST_BYTES = 4096
_WITHIN_S = 10.0


class JoinRequest(Part):
    """What a node shows; from its user data.

    Attributes:
        client_token: of its launch.
        join_token: see `deploy.security.tokens`.
        certificate: that its agent will show, PEM.
    """

    client_token: Annotated[str, Field(min_length=1, max_length=200)]
    join_token: Annotated[str, Field(min_length=1, max_length=200, repr=False)]
    certificate: Annotated[str, Field(min_length=1, max_length=2000)]


class JoinResponse(BaseModel):
    """The node's own token."""

    node_token: Annotated[str, Field(repr=False)]


def router(store: Store, clock: Clock) -> APIRouter:
    """`POST /v1/join`: no access token, its body is the proof."""
    routes = APIRouter(tags=["nodes"], responses=ERRORS)

    def answer(body: bytes) -> bytes:
        request = bodies.parse(JoinRequest, body)
        instance = store.instances.by_client_token(request.client_token)
        allowed = instance is not None and may_join(
            instance.node_token,
            instance.client_token,
            request.join_token,
            age_s=clock.now() - instance.requested_s,
            live=instance.state.live,
            answered=instance.ready_s is not None,
        )
        if instance is None or not allowed:
            raise _refusal()
        try:
            certificate = node_certificate(request.certificate)
        except SecurityError as error:
            raise Refusal(HTTPStatus.UNPROCESSABLE_ENTITY, str(error)) from error
        with store.transaction():
            if not store.instances.joined(instance.instance_id, certificate):
                raise _refusal()
        return JoinResponse(node_token=instance.node_token).model_dump_json().encode()

    @routes.post(
        "/v1/join",
        response_model=JoinResponse,
        openapi_extra={
            "requestBody": {"required": True, "content": {"application/json": {"schema": _SCHEMA}}}
        },
        summary="The token of a node that was rented just now",
    )
    async def join(request: Request) -> Response:
        body = await bodies.read_body(request, _MOST_BYTES, _WITHIN_S)
        return Response(await run_in_threadpool(answer, body), media_type="application/json")

    return routes


def _refusal() -> Refusal:
    return Refusal(
        HTTPStatus.FORBIDDEN,
        "this join token is not valid, or not any more: a node joins once, soon after its launch",
    )


_SCHEMA = JoinRequest.model_json_schema()
