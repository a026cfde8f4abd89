"""What a job prints and leaves: for its submitter and admins, bounded, and however hostile it is."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

import httpx
import pytest

from spotweave.deploy.security.tokens import Role
from spotweave.deploy.security.untrusted import MOST_PARTS
from spotweave.deploy.server.routes import files as routes
from tests.deploy.hostile import TRICKS, Trick
from tests.deploy.server.service import WORKS, Service, encoded, job_request, one_line_error

SECRET = "another submitter's"


def log(service: Service, job_id: str, query: str = "") -> httpx.Response:
    return service.submitter.get(f"/v1/jobs/{job_id}/logs{query}")


def facts(response: httpx.Response) -> str:
    """Attempt, attempts, where to go on, whether more is there, what has ended."""
    assert response.headers["content-type"] == "text/plain; charset=utf-8"
    return " ".join(
        response.headers[f"x-log-{name}"] for name in ("attempt", "attempts", "next", "more", "ended")
    )


def test_a_log_is_read_whole_by_its_end_and_from_where_it_was_left(service: Service) -> None:
    job_id = service.submitted()
    waits = log(service, job_id)
    assert (waits.text, facts(waits)) == ("", "0 0 0 no attempt")
    service.begin(job_id, b"one\ntwo\nthree\n")
    assert (log(service, job_id).text, facts(log(service, job_id))) == ("one\ntwo\nthree\n", "1 1 14 no no")
    assert log(service, job_id, "?tail=2").text == "two\nthree\n"
    assert log(service, job_id, "?tail=0").text == ""
    assert facts(log(service, job_id, "?tail=0")) == "1 1 14 no no"
    assert log(service, job_id, "?after=8").text == "three\n"
    assert facts(log(service, job_id, "?after=1000")) == "1 1 14 no no", "it was shortened meanwhile"
    service.lose(job_id, 1)
    assert facts(log(service, job_id)) == "1 1 14 no attempt"
    service.begin(job_id, b"again\n")
    assert log(service, job_id).text == "again\n"
    assert facts(log(service, job_id, "?attempt=1")) == "1 2 14 no attempt"
    service.end(job_id)
    assert facts(log(service, job_id)) == "2 2 6 no job"


def test_a_long_log_comes_in_pieces_that_cut_no_character(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = service.submitted()
    service.begin(job_id, "añ€b\nlast\n".encode())
    monkeypatch.setattr(routes, "PIECE_BYTES", 7)
    assert log(service, job_id, "?tail=5").text == "last\n", "what is before it may be half a line"
    monkeypatch.setattr(routes, "PIECE_BYTES", 4)
    found, after, more = "", "0", "yes"
    while more == "yes":
        piece = log(service, job_id, f"?after={after}")
        found, after, more = found + piece.text, piece.headers["x-log-next"], piece.headers["x-log-more"]
    assert found == "añ€b\nlast\n"


def test_nothing_in_a_log_is_obeyed_by_a_terminal(service: Service) -> None:
    job_id = service.submitted()
    service.begin(job_id, b"\x1b]0;owned\x07\x1b[2J\r\n50 %\r51 %\0\xff\x9b31m\xc2\x9b\xe2\x80\xae\tend\n")
    assert log(service, job_id).text == "␛]0;owned␇␛[2J\n50 %\n51 %␀��31m��\tend\n"


UNREADABLE = [
    ("?task=other", 404, "it has main"),
    ("?task=Not%20A%20Task", 422, "task"),
    ("?attempt=2", 404, "has had no attempt 2: its latest is 1"),
    ("?attempt=0", 422, "attempt"),
    ("?tail=100000", 422, "tail"),
    ("?after=-1", 422, "after"),
    ("", 404, "the log of main of job JOB: its instance does not answer"),
]


def test_what_cannot_be_read_is_one_line(service: Service) -> None:
    job_id = service.submitted()
    service.begin(job_id, None)
    for query, status, told in UNREADABLE:
        assert told.replace("JOB", job_id) in one_line_error(log(service, job_id, query), status)


def test_of_several_logs_the_first_is_shown_a_trainings_is_its_servers(service: Service) -> None:
    request = job_request(files={"app/pyproject.toml": encoded()})
    request["spec"]["work"] = WORKS["flower"]
    job_id = service.submitted(**request)
    service.scheduler.printed["server", 1] = b"round 1\n"
    assert log(service, job_id).text == "round 1\n"
    service.begin(job_id, b"epoch 1\n", task="client-one")
    assert log(service, job_id, "?task=client-one").text == "epoch 1\n"
    assert "it has server, client-one" in one_line_error(log(service, job_id, "?task=client-two"), 404)


def left(service: Service, job_id: str, **files: bytes) -> Path:
    folder = Path(service.store.jobs.get(job_id).workdir)
    for name, content in files.items():
        place = folder / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)
    return folder


def listed(service: Service, job_id: str) -> dict[str, int]:
    response = service.submitter.get(f"/v1/jobs/{job_id}/files")
    assert response.status_code == 200, response.text
    return {one["path"]: one["size"] for one in response.json()["files"]}


def fetched(service: Service, job_id: str, path: str) -> httpx.Response:
    return service.submitter.get(f"/v1/jobs/{job_id}/files/{quote(path, safe='/')}")


def test_what_a_job_has_left_is_listed_and_fetched_and_what_it_came_with_is_not(service: Service) -> None:
    job_id = service.submitted()
    here = {"results/pi.json": b"3.14", "results/day=1 %2F/part-0.csv": b"", "logs/driver-1.log": b"\0\xff"}
    runners = ("checkpoint/offsets/0", "workspace/moving/x", "workspace/at-here/attempts/one.1/out")
    left(service, job_id, **here, **dict.fromkeys(runners, b"x"))
    assert listed(service, job_id) == {path: len(content) for path, content in here.items()}
    for path, content in here.items():
        assert fetched(service, job_id, path).content == content


def test_of_jobs_of_others_nothing_is_read(service: Service) -> None:
    job_id = service.submitted()
    service.begin(job_id, b"x")
    left(service, job_id, **{"results/a": b"x"})
    service.end(job_id)
    paths = [f"/v1/jobs/{job_id}/{path}" for path in ("logs", "files", "files/results/a")]
    for path in paths:
        assert service.as_(Role.ADMIN).get(path).status_code == 200
        for api in (service.viewer, service.another()):
            assert "only they or an admin" in one_line_error(api.get(path), 403)
    assert "only they or an admin" in one_line_error(service.another().post(f"/v1/jobs/{job_id}/retry"), 403)
    one_line_error(service.viewer.post(f"/v1/jobs/{job_id}/retry"), 403)


def deep(place: Path, secret: Path) -> None:
    folder = place.joinpath(*["d"] * MOST_PARTS)
    folder.mkdir(parents=True)
    (folder / "x").touch()


PLACES: dict[str, Trick] = {
    **TRICKS,
    "deep folders": deep,
    "a name that a terminal obeys": lambda place, secret: place.with_name("\x1b[2J").write_text("x"),
    "a name that is no text": lambda place, secret: open(bytes(place) + b"\xff", "w").close(),
    "a backslash": lambda place, secret: place.with_name("..\\x").write_text("x"),
}


def test_no_trick_in_a_folder_shows_what_is_elsewhere(service: Service, tmp_path: Path) -> None:
    secret = tmp_path / "elsewhere" / "secret"
    secret.parent.mkdir()
    secret.write_text(SECRET)
    elsewhere = ("../../elsewhere/secret", str(secret), "%2e%2e/x", ".spotweave-upload.json")
    job_id = service.submitted()
    folder = left(service, job_id, good=b"good")
    for name, trick in PLACES.items():
        trick(folder / name, secret)
    assert listed(service, job_id) == {"good": 4}
    for path in (*PLACES, *(f"{name}/secret" for name in PLACES), *elsewhere):
        response = fetched(service, job_id, path)
        assert response.status_code == 404, path
        assert SECRET not in response.text


def test_too_many_files_and_none_any_more_are_one_line(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(routes, "FILES_MOST", 2)
    job_id = service.submitted()
    folder = left(service, job_id, a=b"", b=b"")
    path = f"/v1/jobs/{job_id}/files"
    assert "more than 2 files" in one_line_error(service.submitter.get(path), 409)
    folder.rename(folder.with_name("gone"))
    assert "not kept any more" in one_line_error(service.submitter.get(path), 404)
    service.end(job_id)
    retried = service.submitter.post(f"/v1/jobs/{job_id}/retry")
    assert "not kept any more: submit it from its file" in one_line_error(retried, 409)


def test_a_retry_is_a_new_job_of_what_the_first_was_submitted_with(service: Service) -> None:
    files = {"hello.py": encoded(b"print(1)\n"), "lib/a.bin": encoded(b"\0\xff")}
    job_id = service.submitted(files=files)
    path = f"/v1/jobs/{job_id}/retry?request_id=again"
    assert "is pending: wait for its end" in one_line_error(service.submitter.post(path), 409)
    service.end(job_id)
    left(service, job_id, **{"results/a": b"x"})
    first, same = service.submitter.post(path), service.submitter.post(path)
    assert (first.status_code, same.status_code) == (201, 200)
    again = service.store.jobs.get(first.json()["job_id"])
    assert same.json()["job_id"] == again.job_id != job_id
    assert again.spec == service.store.jobs.get(job_id).spec
    assert (Path(again.workdir) / "lib/a.bin").read_bytes() == b"\0\xff"
    assert listed(service, again.job_id) == {}
    (event,) = service.store.events.after(0, 10, job_id=again.job_id)
    assert event.data["retry_of"] == job_id
    # Another caller's retry is theirs.
    of_admin = service.as_(Role.ADMIN).post(f"/v1/jobs/{job_id}/retry").json()
    assert of_admin["submitter"] == "the admin"


@pytest.mark.parametrize("name", ["hello.py", ".spotweave-upload.json"])
def test_what_a_job_has_changed_is_not_submitted_again(service: Service, name: str) -> None:
    job_id = service.submitted()
    service.end(job_id)
    left(service, job_id, **{name: b"import evil"})
    refused = service.submitter.post(f"/v1/jobs/{job_id}/retry")
    assert "any more" in one_line_error(refused, 409)


def test_jobs_are_found_by_how_their_ids_begin(service: Service) -> None:
    job_id = service.submitted()
    service.submitted()

    def found(prefix: str) -> list[str]:
        return [one["job_id"] for one in service.viewer.get("/v1/jobs", params={"prefix": prefix}).json()]

    assert found(job_id[:-1]) == [job_id]
    assert len(found("hello-")) == 2
    assert found("ello") == []
    one_line_error(service.viewer.get("/v1/jobs", params={"prefix": "%"}), 422)
