"""What one client may take of what all share: jobs, files, memory, connections."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from spotweave.deploy.server import bodies
from spotweave.deploy.server.admission import Quotas
from spotweave.deploy.server.connections import ConnectionLimits, Connections, Guest, Waits, network_of
from spotweave.deploy.server.middleware import Metrics
from spotweave.deploy.server.routes.jobs import Submissions
from tests.deploy.runners.patience import dripping
from tests.deploy.server.service import (
    Make,
    Service,
    encoded,
    job_request,
    one_line_error,
    serving,
)

MIB = 1 << 20


def quotas(**some: int) -> Quotas:
    return Quotas(**{"free_disk_mib": 0, **some})


def large(size: int = MIB) -> dict[str, Any]:
    return {"files": {name: encoded(b"x" * (size // 2)) for name in ("hello.py", "data")}}


def kept(service: Service) -> int:
    """Jobs in the store; as many folders are on the disk."""
    jobs = service.store.jobs.latest(100)
    assert service.folders() == sorted(job.job_id for job in jobs)
    return len(jobs)


def test_so_many_jobs_of_a_submitter_live_at_once(make: Make) -> None:
    service = make(quotas=quotas(live_jobs=2))
    made = [service.submit(request_id=f"r{k}") for k in range(3)]
    assert [one.status_code for one in made] == [201, 201, 429]
    assert "2 of your jobs have not ended" in one_line_error(made[2])
    assert "Retry-After" not in made[2].headers, "nothing says when one ends"
    assert service.submit(request_id="r1").status_code == 200
    assert service.another().post("/v1/jobs", json=job_request()).status_code == 201
    assert kept(service) == 3
    # However one of them ends.
    assert service.submitter.delete(f"/v1/jobs/{made[0].json()['job_id']}").status_code == 200
    another_id = service.submitted()
    assert service.submit().status_code == 429
    service.end(another_id)
    assert service.submit().status_code == 201


def test_so_many_jobs_a_minute(make: Make) -> None:
    service = make(quotas=quotas(jobs_a_minute=3))
    for _ in range(3):
        assert service.submit().status_code == 201
        service.clock.sleep(10.0)
    refused = service.submit()
    assert "3 jobs within a minute" in one_line_error(refused, 429)
    assert refused.headers["Retry-After"] == "30"
    assert service.another().post("/v1/jobs", json=job_request()).status_code == 201
    service.clock.sleep(30.0)
    assert service.submit().status_code == 201
    assert service.submit().status_code == 429


def test_the_files_of_a_submitters_jobs_have_a_size(make: Make) -> None:
    service = make(quotas=quotas(stored_mib=2))
    made = [service.submit(**large(MIB // 8 * 7)) for _ in range(3)]
    assert [one.status_code for one in made] == [201, 201, 413]
    assert "the files of your jobs take 1.8 MiB, and these 0.9 MiB more" in one_line_error(made[2])
    assert service.another().post("/v1/jobs", json=job_request(**large())).status_code == 201
    assert kept(service) == 3
    with service.store.transaction():
        service.store.folders.removed(made[0].json()["job_id"])
    assert service.submit(**large(MIB // 2)).status_code == 201


@pytest.mark.parametrize(
    ("some", "taken", "message"),
    [
        ({"all_stored_mib": 1}, 1, "of at most 1 MiB"),
        ({"free_disk_mib": 10**9}, 0, "less than 1000000000 MiB left"),
    ],
)
def test_the_files_of_all_jobs_have_a_size_and_leave_some_of_the_disk(
    make: Make, some: dict[str, int], taken: int, message: str
) -> None:
    service = make(quotas=quotas(**some))
    for _ in range(taken):
        service.submitted(**large(MIB // 4 * 3))
    refused = service.another().post("/v1/jobs", json=job_request(**large(MIB // 4 * 3)))
    assert message in one_line_error(refused, 507)
    assert kept(service) == taken


def test_jobs_that_come_all_at_once_pass_no_quota(make: Make) -> None:
    service = make(quotas=quotas(live_jobs=3))
    answers = service.submitter.at_once("/v1/jobs", [job_request()] * 12)
    assert sorted(one.status_code for one in answers) == [201] * 3 + [429] * 9
    assert kept(service) == 3


def slow_submissions(monkeypatch: pytest.MonkeyPatch, seconds: float) -> list[int]:
    """Each takes so long. The list has one number, of how many there were at once at most."""
    submit, lock, inside, most = Submissions.submit, threading.Lock(), [0], [0]

    def slowly(self: Submissions, *arguments: Any) -> Any:
        with lock:
            inside[0] += 1
            most[0] = max(most[0], inside[0])
        time.sleep(seconds)
        try:
            return submit(self, *arguments)
        finally:
            with lock:
                inside[0] -= 1

    monkeypatch.setattr(Submissions, "submit", slowly)
    return most


@pytest.mark.real
def test_of_large_bodies_only_some_are_in_memory_at_once(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    service = make(job_bytes=2 * MIB, bodies_bytes=4 * MIB)
    most = slow_submissions(monkeypatch, 0.02)
    answers = service.submitter.at_once("/v1/jobs", [job_request(**large()) for _ in range(10)])
    assert [one.status_code for one in answers] == [201] * 10
    assert most[0] == 1, "half of the room is one submitter's"


@pytest.mark.real
def test_a_body_for_which_there_is_no_room_in_time_is_refused(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = make(job_bytes=2 * MIB, bodies_bytes=4 * MIB, body_within_s=0.3)
    slow_submissions(monkeypatch, 1.5)
    answers = service.submitter.at_once("/v1/jobs", [job_request(**large())] * 2)
    assert sorted(one.status_code for one in answers) == [201, 429]
    (refused,) = (one for one in answers if one.status_code == 429)
    assert "try again soon" in one_line_error(refused)
    assert refused.headers["Retry-After"] == "5"


@pytest.mark.real
def test_a_body_that_drips_is_refused_before_its_time_is_over(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bodies, "_GRACE_S", 0.5)
    with serving(make(body_within_s=3600.0)) as live, live.connect() as one:
        one.sendall(live.posting_a_job(1_000_000))
        with dripping([one], b" " * 1000, every_s=0.1):
            assert one.recv(4096).startswith(b"HTTP/1.1 408")


class House:
    """Connections that note who was sent away."""

    def __init__(self, most: int, most_each: int) -> None:
        self.metrics = Metrics()
        self.all = Connections(ConnectionLimits(most=most, most_each=most_each), self.metrics)
        self.gone: list[str] = []

    def enter(self, name: str, waits: Waits = Waits.REQUEST) -> Guest | None:
        guest = self.all.enter(name.partition("#")[0])
        if guest is not None:
            guest.drop = lambda: self.gone.append(name)
            self.all.now_waits(guest, waits)
        return guest

    @property
    def open(self) -> float | None:
        return self.metrics.registry.get_sample_value("spotweave_http_connections")


GREEDY = ["10.0.0.1", "10.0.0.2#1", "10.0.0.2#2", "10.0.0.2#3"]


@pytest.mark.parametrize(
    ("most", "most_each", "names", "gone"),
    [
        pytest.param(4, 3, [*GREEDY, "10.0.0.3"], ["10.0.0.2#1"], id="in a full house the greediest's"),
        pytest.param(100, 2, GREEDY, ["10.0.0.2#1"], id="an address at its limit makes room itself"),
        pytest.param(
            *(100, 5, [f"2001:db8::{host:x}" for host in range(20)]),
            [f"2001:db8::{host:x}" for host in range(15)],
            id="a network of IPv6 shares a limit",
        ),
    ],
)
def test_who_goes_for_who_comes(most: int, most_each: int, names: list[str], gone: list[str]) -> None:
    house = House(most, most_each)
    assert None not in [house.enter(name) for name in names]
    assert house.gone == gone
    assert house.open == len(names) - len(gone)


def test_who_is_being_answered_stays_and_bodies_go_after_the_idle() -> None:
    house = House(most=3, most_each=3)
    house.enter("10.0.0.1#answered", Waits.ANSWER)
    house.enter("10.0.0.1#body", Waits.BODY)
    house.enter("10.0.0.1#idle")
    house.enter("10.0.0.1#2", Waits.ANSWER)
    newest = house.enter("10.0.0.1#3", Waits.ANSWER)
    assert newest is not None
    assert house.gone == ["10.0.0.1#idle", "10.0.0.1#body"]
    assert house.enter("10.0.0.1#4") is None
    assert house.enter("10.0.0.9") is None, "all are being answered"
    house.all.leave(newest)
    house.all.leave(newest)
    assert house.open == 2, "an end that is told twice counts once"
    assert house.enter("10.0.0.9") is not None


def test_who_waits_for_a_next_request_is_idle_from_then_on() -> None:
    house = House(most=2, most_each=2)
    first = house.enter("10.0.0.1#1")
    house.enter("10.0.0.1#2")
    assert first is not None
    house.all.now_waits(first, Waits.ANSWER)
    house.all.now_waits(first, Waits.REQUEST)
    house.enter("10.0.0.1#3")
    assert house.gone == ["10.0.0.1#2"]


@pytest.mark.parametrize(
    ("address", "network"),
    [
        ("10.1.2.3", "10.1.2.3"),
        ("::ffff:10.1.2.3", "10.1.2.3"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2::", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("::1", "::/64"),
        ("", ""),
    ],
)
def test_whoever_has_a_network_of_ipv6_is_one(address: str, network: str) -> None:
    assert network_of(address) == network
