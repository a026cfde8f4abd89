"""What one submitter may take of what all share."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest

from deploy.config import QuotasConfig
from deploy.model.jobs import JobState
from deploy.server import bodies
from deploy.server.admission import Quotas
from deploy.server.connections import ConnectionLimits
from deploy.server.deciding import Deciders
from deploy.server.routes.jobs import Submissions
from deploy.store.store import Store
from tests.deploy.server.service import NOW, Service, encoded, job_request, make_service, one_line_error
from tests.deploy.server.test_hostile import serving

MIB = 1 << 20


@pytest.fixture
def make(tmp_path: Path, store: Store, deciders: Deciders) -> Any:
    def made(**quotas: int) -> Service:
        return make_service(tmp_path, store, deciders, quotas=Quotas(**{"free_disk_mib": 0, **quotas}))

    return made


def large(size: int = MIB) -> dict[str, Any]:
    return {"files": {name: encoded(b"x" * (size // 2)) for name in ("hello.py", "data")}}


def kept(service: Service) -> int:
    """Jobs in the store; as many folders are on the disk."""
    jobs = service.store.jobs.latest(100)
    assert service.folders() == sorted(job.job_id for job in jobs)
    return len(jobs)


def test_so_many_jobs_of_a_submitter_live_at_once(make: Any) -> None:
    service = make(live_jobs=2)
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
    with service.store.transaction():
        service.store.jobs.set_state(another_id, JobState.FAILED, NOW)
    assert service.submit().status_code == 201


def test_so_many_jobs_a_minute(make: Any) -> None:
    service = make(jobs_a_minute=3)
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


def test_the_files_of_a_submitters_jobs_have_a_size(make: Any) -> None:
    service = make(stored_mib=2)
    made = [service.submit(**large(MIB // 8 * 7)) for _ in range(3)]
    assert [one.status_code for one in made] == [201, 201, 413]
    assert "the files of your jobs take 1.8 MiB, and these 0.9 MiB more" in one_line_error(made[2])
    assert service.another().post("/v1/jobs", json=job_request(**large())).status_code == 201
    assert kept(service) == 3
    with service.store.transaction():
        service.store.folders.removed(made[0].json()["job_id"])
    assert service.submit(**large(MIB // 2)).status_code == 201


@pytest.mark.parametrize(
    ("quotas", "taken", "message"),
    [
        ({"all_stored_mib": 1}, 1, "of at most 1 MiB"),
        ({"free_disk_mib": 10**9}, 0, "less than 1000000000 MiB left"),
    ],
)
def test_the_files_of_all_jobs_have_a_size_and_leave_some_of_the_disk_alone(
    make: Any, quotas: dict[str, int], taken: int, message: str
) -> None:
    service = make(**quotas)
    for _ in range(taken):
        service.submitted(**large(MIB // 4 * 3))
    refused = service.another().post("/v1/jobs", json=job_request(**large(MIB // 4 * 3)))
    assert message in one_line_error(refused, 507)
    assert kept(service) == taken


def test_jobs_that_come_all_at_once_pass_no_quota(make: Any) -> None:
    service = make(live_jobs=3)
    answers = service.submitter.at_once("/v1/jobs", [job_request()] * 12)
    assert sorted(one.status_code for one in answers) == [201] * 3 + [429] * 9
    assert kept(service) == 3


@pytest.mark.real
def test_of_large_bodies_only_some_are_in_memory_at_once(
    tmp_path: Path, store: Store, deciders: Deciders, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = make_service(tmp_path, store, deciders, job_bytes=2 * MIB, bodies_bytes=4 * MIB)
    submit = Submissions.submit
    lock, inside, most = threading.Lock(), [0], [0]

    def slowly(self: Submissions, *arguments: Any) -> Any:
        with lock:
            inside[0] += 1
            most[0] = max(most[0], inside[0])
        time.sleep(0.02)
        try:
            return submit(self, *arguments)
        finally:
            with lock:
                inside[0] -= 1

    monkeypatch.setattr(Submissions, "submit", slowly)
    answers = service.submitter.at_once("/v1/jobs", [job_request(**large()) for _ in range(10)])
    assert [one.status_code for one in answers] == [201] * 10
    assert most[0] == 1, "half of the room is one submitter's"


@pytest.mark.real
def test_a_body_for_which_there_is_no_room_in_time_is_refused(
    tmp_path: Path, store: Store, deciders: Deciders, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = make_service(
        tmp_path, store, deciders, job_bytes=2 * MIB, bodies_bytes=4 * MIB, body_within_s=0.3
    )
    submit = Submissions.submit

    def slowly(self: Submissions, *arguments: Any) -> Any:
        time.sleep(1.5)
        return submit(self, *arguments)

    monkeypatch.setattr(Submissions, "submit", slowly)
    answers = service.submitter.at_once("/v1/jobs", [job_request(**large())] * 2)
    assert sorted(one.status_code for one in answers) == [201, 429]
    (refused,) = (one for one in answers if one.status_code == 429)
    assert "try again soon" in one_line_error(refused)
    assert refused.headers["Retry-After"] == "5"


@pytest.mark.real
def test_a_body_that_drips_is_refused_before_its_time_is_over(
    tmp_path: Path, store: Store, deciders: Deciders, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bodies, "_GRACE_S", 0.5)
    with serving(tmp_path, store, deciders, ConnectionLimits(), body_within_s=3600.0) as live:
        with live.connect() as one:
            one.sendall(live.posting_a_job(1_000_000))
            one.settimeout(0.1)
            answer, end = b"", time.monotonic() + 30.0
            while b"\r\n\r\n" not in answer:
                assert time.monotonic() < end
                one.sendall(b" ")
                try:
                    answer += one.recv(4096)
                except TimeoutError:
                    continue
        assert answer.startswith(b"HTTP/1.1 408")


def test_a_deployments_file_has_the_same_defaults() -> None:
    assert Quotas(**QuotasConfig().model_dump()) == Quotas()
