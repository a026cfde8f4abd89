"""Authentication and authorisation of requests."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Annotated
from urllib.parse import urlsplit

from anyio import CapacityLimiter
from anyio.to_thread import run_sync
from fastapi import Depends, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from spotweave.deploy.model.clock import Clock
from spotweave.deploy.security.keys import is_loopback
from spotweave.deploy.security.tokens import AccessTokens, Role, TokenError
from spotweave.deploy.server.errors import Refusal
from spotweave.deploy.store.jobs import Job

_BEARER = HTTPBearer(auto_error=False, description="An access token: spotweave token create")
_CHALLENGE = {"WWW-Authenticate": "Bearer"}
_THREADS = 8
LOCAL = "local"  # name of everyone where no tokens are needed


@dataclass(frozen=True)
class Caller:
    """The caller of a request."""

    name: str  # of the token; tokens of one name are one submitter's
    role: Role
    token_id: str | None  # its public part; None where no tokens are needed

    def may_see(self, submitter: str | None) -> bool:
        """Whether they may see what a job of `submitter` was given, and what it says."""
        return self.role is Role.ADMIN or self.name == submitter

    def may_change(self, submitter: str) -> bool:
        """Whether they may cancel a job that `submitter` submitted."""
        return self.role is Role.ADMIN or (self.role is Role.SUBMITTER and self.name == submitter)


def not_theirs(job: Job, what: str) -> Refusal:
    """The refusal to let someone do to a job what only its submitter and admins may."""
    return Refusal(
        HTTPStatus.FORBIDDEN,
        f"job {job.job_id} was submitted by {job.submitter!r}: only they or an admin {what}",
    )


class Access:
    """Checks requests.

    Without `tokens` only requests to and from loopback names are answered. That keeps out pages of the
    web in a browser on this machine, which reach loopback as well.
    """

    def __init__(self, tokens: AccessTokens | None, clock: Clock) -> None:
        self._tokens, self._clock = tokens, clock
        # Of their own: whoever asks must be known before it can be said what may wait.
        self._threads = CapacityLimiter(_THREADS)

    def require(self, role: Role) -> Callable[..., Awaitable[Caller]]:
        """A dependency that refuses whoever has less than this role."""

        async def required(
            request: Request, credentials: Annotated[HTTPAuthorizationCredentials | None, Depends(_BEARER)]
        ) -> Caller:
            caller = await self._caller(request, credentials)
            request.state.caller = caller
            if not caller.role.allows(role):
                raise Refusal(
                    HTTPStatus.FORBIDDEN,
                    f"the access token {caller.token_id} is a {caller.role}'s: this needs a {role}'s",
                )
            return caller

        return required

    async def still_valid(self, request: Request) -> bool:
        """Whether the token of a request that lasts is still one."""
        if self._tokens is None:
            return True
        try:
            token = request.headers.get("authorization", "").partition(" ")[2]
            await run_sync(self._check, token, limiter=self._threads)
        except TokenError:
            return False
        return True

    async def _caller(self, request: Request, credentials: HTTPAuthorizationCredentials | None) -> Caller:
        if self._tokens is None:
            _require_local(request)
            return Caller(LOCAL, Role.ADMIN, None)
        if credentials is None:
            raise Refusal(
                HTTPStatus.UNAUTHORIZED,
                "this needs an access token: send the header Authorization: Bearer TOKEN",
                _CHALLENGE,
            )
        try:
            # It reads, and now and then writes, the store: never in the event loop.
            return await run_sync(self._check, credentials.credentials, limiter=self._threads)
        except TokenError as error:
            raise Refusal(HTTPStatus.UNAUTHORIZED, str(error), _CHALLENGE) from error

    def _check(self, text: str) -> Caller:
        assert self._tokens is not None
        record = self._tokens.check(text, self._clock.now())
        return Caller(record.name, record.role, record.token_id)


def _require_local(request: Request) -> None:
    origin = request.headers.get("origin")
    for what, place in (("Host", f"//{request.headers.get('host', '')}"), ("Origin", origin)):
        try:
            host = None if place is None else urlsplit(place).hostname or ""
        except ValueError:
            host = ""
        if host is not None and not is_loopback(host):
            raise Refusal(
                HTTPStatus.FORBIDDEN,
                f"without access tokens only requests to and from loopback are answered; {what} is {host!r}: "
                "use 127.0.0.1, or set up tokens",
            )
