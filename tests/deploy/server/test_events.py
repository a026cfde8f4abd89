"""Events: pages, and a stream that can be resumed."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from deploy.security.tokens import AccessTokens, Role
from tests.deploy.node.agents import wait_until
from tests.deploy.server.service import NOW, Make, Service, one_line_error, serving

Listening = tuple[Service, httpx.Client]


def sequences(events: list[dict[str, Any]]) -> list[int]:
    return [event["sequence"] for event in events]


def happen(service: Service, count: int, job_id: str | None = None) -> None:
    for number in range(count):
        with service.store.transaction():
            service.store.events.add("thing.happened", NOW, {"number": number, "text": "a\nb"}, job_id=job_id)


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("after=0&limit=2", [1, 2]),
        ("after=2", [3, 4, 5]),
        ("limit=2", [4, 5]),
        ("job_id=one&limit=2", [2, 3]),
        ("job_id=two&after=4", [5]),
        ("after=5", []),
    ],
)
def test_pages_of_events_follow_each_other(service: Service, query: str, found: list[int]) -> None:
    happen(service, 3, "one")
    happen(service, 2, "two")
    assert sequences(service.viewer.get(f"/v1/events?{query}").json()) == found


@pytest.fixture
def live(make: Make) -> Iterator[Listening]:
    """A real listener: the transport of the other tests waits for the end of an answer."""
    with serving(make(poll_s=0.02, heartbeat_s=0.05, streams=2)) as one, one.client(Role.VIEWER) as client:
        yield one.service, client


def read(
    client: httpx.Client,
    count: int,
    query: str = "",
    last: str | None = None,
    then: Callable[[], object] = int,
) -> list[dict[str, Any]]:
    """The first events of a stream; `then` is called when it has been opened."""
    found: list[dict[str, Any]] = []
    headers = {} if last is None else {"Last-Event-ID": last}
    with client.stream("GET", f"/v1/events/stream{query}", headers=headers) as response:
        assert response.status_code == 200, response.read()
        assert response.headers["content-type"].startswith("text/event-stream")
        fields: dict[str, str] = {}
        for line in response.iter_lines():
            name, _, value = line.partition(": ")
            if name == "retry":
                then()
            elif name:
                fields[name] = value
            elif "data" in fields:
                event = json.loads(fields["data"])
                assert (fields["id"], fields["event"]) == (str(event["sequence"]), event["kind"])
                found.append(event)
                fields = {}
                if len(found) == count:
                    break
    return found


def test_a_stream_shows_each_event_as_it_comes(live: Listening) -> None:
    service, client = live
    happen(service, 2)
    found = read(client, 3, then=lambda: happen(service, 3))
    assert sequences(found) == [3, 4, 5]
    assert [event["data"] for event in found] == [{"number": k, "text": "a\nb"} for k in range(3)]
    happen(service, 1, "one")
    happen(service, 1, "two")
    assert sequences(read(client, 1, "?after=0&job_id=two")) == [7]


@pytest.mark.real
def test_a_stream_that_broke_is_taken_up_where_it_was(live: Listening) -> None:
    service, client = live
    happen(service, 700)
    first = read(client, 2, "?after=0")
    assert sequences(first) == [1, 2]
    rest = read(client, 698, "?after=0", last=str(first[-1]["sequence"]))
    assert sequences(rest) == list(range(3, 701))


@pytest.mark.parametrize("ends", ["its token", "the service"])
def test_a_stream_ends_with_its_token_and_with_the_service(live: Listening, ends: str) -> None:
    service, client = live
    access = AccessTokens(service.store)
    token = access.create("leaver", Role.VIEWER, NOW)
    headers = {"Authorization": f"Bearer {token.text}"}
    with client.stream("GET", "/v1/events/stream", headers=headers) as response:
        lines = response.iter_lines()
        while next(lines) != ": still here":
            pass
        if ends == "its token":
            access.revoke(token.record.token_id, NOW)
        else:
            service.app.state.context.closing.set()
        assert all(line in ("", ": still here") for line in lines), "the rest of the stream"


def test_only_so_many_streams_at_once(live: Listening) -> None:
    client = live[1]
    for last in ("x", "-1", str(2**63)):
        one_line_error(client.get("/v1/events/stream", headers={"Last-Event-ID": last}), 422)
    with client.stream("GET", "/v1/events/stream") as one, client.stream("GET", "/v1/events/stream") as two:
        # Held until the end: a generator that is thrown away closes its stream.
        held = [response.iter_lines() for response in (one, two)]
        for lines in held:
            next(lines)
        with client.stream("GET", "/v1/events/stream") as refused:
            refused.read()
        one_line_error(refused, 429)
        assert "spotweave_event_followers 2.0" in client.get("/metrics").text
    wait_until(lambda: "spotweave_event_followers 0.0" in client.get("/metrics").text)
