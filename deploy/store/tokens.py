"""Records of access tokens; `deploy.security.tokens` makes and checks them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from sqlalchemy import Row, insert, select, update

from spotweave.deploy.security.tokens import Role, TokenRecord
from spotweave.deploy.store.database import Noun
from spotweave.deploy.store.errors import StoreUnavailableError
from spotweave.deploy.store.schema import tokens


def _record(row: Row[Any]) -> TokenRecord:
    values = dict(row._mapping)
    return TokenRecord(**{**values, "role": Role(values["role"]), "digest": bytes(values["digest"])})


class Tokens(Noun):
    """The token records of a store. Writing needs a transaction, but for `used`."""

    def add(self, record: TokenRecord) -> None:
        """Keep a new one."""
        self._database.writing.execute(insert(tokens).values({**vars(record), "role": record.role.value}))

    def get(self, token_id: str) -> TokenRecord | None:
        """One, if there is one."""
        row = self._database.read_one(select(tokens).where(tokens.c.token_id == token_id))
        return None if row is None else _record(row)

    def all(self) -> Sequence[TokenRecord]:
        """Every one, the oldest first."""
        query = select(tokens).order_by(tokens.c.created_s, tokens.c.token_id)
        return [_record(row) for row in self._database.read_all(query)]

    def revoke(self, token_id: str, now_s: float) -> bool:
        """Make it invalid for ever; False if there is none such. The first revocation's time stays."""
        found = self.get(token_id)
        if found is not None and found.revoked_s is None:
            statement = update(tokens).where(tokens.c.token_id == token_id).values(revoked_s=now_s)
            self._database.writing.execute(statement)
        return found is not None

    def used(self, token_id: str, now_s: float) -> None:
        """Note its use, unless another thread writes just now: no request waits for that."""
        statement = update(tokens).where(tokens.c.token_id == token_id).values(last_used_s=now_s)
        with suppress(StoreUnavailableError), self._database.transaction(wait_s=0.0) as connection:
            connection.execute(statement)
