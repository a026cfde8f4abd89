"""A broker's HTTPS side: bounded, and deaf without a token; each token opens what its bearer needs.

`python -m spotweave.deploy.fl.broker_server SETTINGS`, a JSON file: one broker, until it is told to stop.
"""

from __future__ import annotations

import hmac
import logging
import re
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np

from spotweave.agents.federated.asynchronous.aggregator import UpdateError
from spotweave.deploy.fl.broker import (
    RUNNER,
    SERVER,
    Agreement,
    BrokerError,
    BrokerSettings,
    DurableBroker,
    Model,
    Organizer,
    Prepared,
    Standings,
    UnwantedError,
    broker,
)
from spotweave.deploy.node.api import RefusalError
from spotweave.deploy.node.server import Listener, QuietHandler, tls_context

_WITHIN_S = 30.0
_BYTES_S = 250e3
_SHARD = re.compile(r"/v1/shards/([0-9]{1,9})/([0-9]{1,16})")
_CLIENT = re.compile(r"client-([0-9]{1,6})")
_log = logging.getLogger(__name__)


class BrokerServer(Listener):
    """One broker. Raises OSError if it cannot listen there."""

    def __init__(self, settings: BrokerSettings) -> None:
        self.tokens = settings.tokens
        self.broker = DurableBroker(settings)
        self.organizer = None
        if settings.number == 0:
            self.organizer = Organizer(self.broker, settings.others, settings.incomplete_s)
        settings.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        context = tls_context(settings.certificate, settings.key, settings.folder / "tls.pem")
        super().__init__(settings.host, settings.port, _Handler, context)


class _Handler(QuietHandler):
    server: BrokerServer
    json_most_bytes = 4 << 20

    def do_PUT(self) -> None:  # noqa: N802
        """Takes a shard."""
        self._serve(self._put)

    def do_POST(self) -> None:  # noqa: N802
        """Everything else."""
        self._serve(self._post)

    def _serve(self, act: Callable[[str], None]) -> None:
        try:
            who = self._who()
            self.server.trust(self.connection, _WITHIN_S)
            act(who)
        except RefusalError as refusal:
            self._refuse(refusal.code, str(refusal))
        except UnwantedError as error:
            self._refuse(410, str(error))
        except UpdateError as error:
            self._refuse(422, str(error))
        except BrokerError as error:
            self._refuse(503, str(error))
        except (ConnectionError, TimeoutError, EOFError):
            raise
        except Exception:
            _log.exception("a request failed")
            self._refuse(503, "an error inside the broker; its log says more")

    def _who(self) -> str:
        given = self.headers.get("Authorization", "").encode()
        found = [
            who
            for who, token in self.server.tokens.items()
            if hmac.compare_digest(given, f"Bearer {token}".encode())
        ]
        if not found:
            raise RefusalError(401, "expected a token of this broker")
        return found[0]

    def _put(self, who: str) -> None:
        client, place = _CLIENT.fullmatch(who), _SHARD.fullmatch(self.path)
        if client is None or place is None:
            raise RefusalError(403, f"{who} sends no shards, or not there")
        size = self.server.broker.size
        length = self.length(8 * size)
        if length != 8 * size:
            raise RefusalError(422, f"a shard of {length} bytes: expected {8 * size}, 8 for each weight")
        self.server.trust(self.connection, _WITHIN_S + length / _BYTES_S)
        values = np.frombuffer(self.body(length), np.uint64)
        self.server.broker.receive(int(client[1]), int(place[1]), int(place[2]), values)
        self.send(204, b"")

    def _post(self, who: str) -> None:
        own = self.server.broker
        match who, self.path:
            case (one, "/v1/model") if one == SERVER:
                model = self.message(Model)
                own.model(model.version, model.size)
                self.send(204, b"")
            case (one, "/v1/prepare") if one == SERVER and self.server.organizer is not None:
                version = self.message(Model).version
                self.answer(_prepared(self.server.organizer, version))
            case (one, "/v1/component") if one == SERVER:
                self._send_component(self.message(Model).version)
            case (one, "/v1/held") if one == broker(0):
                self.answer(own.held())
            case (one, "/v1/agree") if one == broker(0):
                said = self.message(Agreement)
                own.agree(said.version, said.confirmed, said.discarded)
                self.send(204, b"")
            case (one, "/v1/standing") if one == RUNNER:
                self.answer(Standings(own.standing()))
            case _:
                raise RefusalError(403, f"{who} may not do that")

    def _send_component(self, version: int) -> None:
        head, values = self.server.broker.component(version)
        self.server.trust(self.connection, _WITHIN_S + values.nbytes / _BYTES_S)
        content = head.model_dump_json().encode() + b"\n" + values.tobytes()
        self.send(200, content, "application/octet-stream")

    def _refuse(self, code: int, message: str) -> None:
        self.send(code, message.encode(), "text/plain")


def _prepared(organizer: Organizer, version: int) -> Prepared:
    staleness = [version - update.base_version for update in organizer.prepare(version)]
    if not staleness:
        return Prepared()
    mean = sum(staleness) / len(staleness)
    return Prepared(updates=len(staleness), staleness_mean=mean, staleness_most=max(staleness))


if __name__ == "__main__":
    given = BrokerSettings.model_validate_json(Path(sys.argv[1]).read_bytes())
    BrokerServer(given).serve_forever(poll_interval=0.5)
