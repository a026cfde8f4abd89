"""What is put is whole, what was given, and never overwritten: in S3, Cloud Storage and a folder."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from botocore.awsrequest import AWSResponse
from moto.core.botocore_stubber import MockRawResponse

from spotweave.deploy.objects import s3
from spotweave.deploy.objects.location import (
    Bucket,
    ConflictError,
    FolderObjects,
    Objects,
    ObjectsError,
    parse,
)
from tests.deploy.objects.buckets import S3, Gcs

CONTENT = bytes(range(256)) * 5000


@pytest.fixture
def no_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    # The SDKs wait between two tries.
    monkeypatch.setattr("botocore.endpoint.time", SimpleNamespace(sleep=lambda seconds: None))
    monkeypatch.setattr("google.api_core.retry.retry_unary.time.sleep", lambda seconds: None)
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)


@pytest.fixture
def account(no_waits: None) -> S3:
    return S3()


@pytest.fixture
def project(no_waits: None) -> Gcs:
    return Gcs()


@pytest.fixture(params=[S3, Gcs], ids=["s3", "gs"])
def cloud(request: pytest.FixtureRequest, no_waits: None) -> S3:
    made: S3 = request.param()
    return made


@pytest.fixture(params=["account", "project", "folder"])
def objects(request: pytest.FixtureRequest, tmp_path: Path) -> Objects:
    if request.param == "folder":
        return FolderObjects(tmp_path / "kept")
    made: Objects = request.getfixturevalue(request.param).objects()
    return made


def test_the_same_twice_is_once_and_other_content_is_refused(objects: Objects) -> None:
    objects.put("job/a", CONTENT)
    objects.put("job/a", CONTENT)
    with pytest.raises(ConflictError, match="job/a is there already, with other content"):
        objects.put("job/a", CONTENT[:-1])
    assert objects.get("job/a") == CONTENT


def test_names_are_those_that_begin_so_and_deleting_twice_is_once(objects: Objects) -> None:
    assert list(objects.names("job/")) == []
    for name in ("job/b/1", "job/a", "job2/a"):
        objects.put(name, b"x")
    assert sorted(objects.names("job/")) == ["job/a", "job/b/1"]
    objects.delete("job/a")
    objects.delete("job/a")
    assert list(objects.names("job/")) == ["job/b/1"]
    assert objects.get("job/a") is None


@pytest.mark.usefixtures("no_waits")
@pytest.mark.parametrize("made", [pytest.param(S3, marks=pytest.mark.real), Gcs])
def test_more_names_than_fit_a_page(made: type[S3]) -> None:
    cloud = made()
    cloud.objects().put("job/0", b"")
    cloud.copy("job/0", [f"job/{number}" for number in range(1, 1003)])
    assert len(cloud.objects().names("job/")) == 1003
    assert cloud.calls(cloud.listing) == 2


@pytest.mark.parametrize("faults", [{"error": 1.0, "most": 3}, {"lost": 1.0, "most": 2}])
def test_it_is_put_whole_though_the_cloud_fails(cloud: S3, faults: dict[str, Any]) -> None:
    cloud.fail(actions=[cloud.put], **faults)
    cloud.objects().put("job/a", CONTENT)
    # What follows a lost answer of Cloud Storage is a refusal, and the emulator loses no refusal.
    struck = 1 if cloud.scheme == "gs" and "lost" in faults else faults["most"]
    assert cloud.calls(cloud.put) == struck + 1
    assert cloud.objects().get("job/a") == CONTENT


def test_what_the_cloud_does_not_take_is_an_error_and_nothing_is_there(cloud: S3) -> None:
    cloud.fail(actions=[cloud.put], error=1.0)
    words = {"s3": r"AWS failed \(", "gs": "no answer from Google Cloud: Timeout of "}[cloud.scheme]
    with pytest.raises(ObjectsError, match=f"{cloud.scheme}://spotweave-tests/here/job/a: {words}") as caught:
        cloud.objects().put("job/a", CONTENT)
    assert not isinstance(caught.value, ConflictError)
    assert "\n" not in str(caught.value)
    assert cloud.objects().names("") == []


def test_throttling_is_waited_for(cloud: S3, monkeypatch: pytest.MonkeyPatch) -> None:
    cloud.fail(calls_per_s=0.001, burst=1)
    waits = []

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        cloud.emulator.world.clock.sleep(10_000.0)

    monkeypatch.setattr("botocore.endpoint.time.sleep", sleep)
    monkeypatch.setattr("google.api_core.retry.retry_unary.time.sleep", sleep)
    objects = cloud.objects()
    assert objects.get("none") is None
    objects.put("job/a", CONTENT)
    assert objects.get("job/a") == CONTENT
    assert len(waits) == cloud.emulator.faults.counts["throttled"] == 3


def test_a_race_of_two_is_run_again(account: S3, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(s3, "_RACE_S", 0.0)
    races = [0]

    def race(request: Any, **_: Any) -> AWSResponse | None:
        races[0] += 1
        if races[0] > 2:
            return None
        text = "<Error><Code>ConditionalRequestConflict</Code><Message>raced</Message></Error>"
        return AWSResponse(request.url, 409, {}, MockRawResponse(text.encode()))

    account.plain.meta.events.register_first("before-send.s3.PutObject", race)
    account.objects().put("job/a", CONTENT)
    assert races == [3]
    races[0] = -100
    with pytest.raises(ObjectsError, match="ConditionalRequestConflict"):
        account.objects().put("job/b", CONTENT)
    assert races == [-95]


def test_what_is_read_back_otherwise_is_not_put(cloud: S3, monkeypatch: pytest.MonkeyPatch) -> None:
    objects = cloud.objects()
    real = objects.get
    monkeypatch.setattr(objects, "get", lambda name: (real(name) or b"")[:-1])
    with pytest.raises(ObjectsError, match="what is read back is not what was put"):
        objects.put("job/a", CONTENT)


def test_s3_is_told_what_it_shall_get_and_not_to_overwrite(account: S3) -> None:
    sent: list[dict[str, str]] = []

    def note(request: Any, **_: Any) -> None:
        sent.append({name.lower(): str(value) for name, value in request.headers.items()})

    account.plain.meta.events.register_first("before-send.s3.PutObject", note)
    account.objects().put("job/a", CONTENT)
    (headers,) = sent
    assert "if-none-match" in headers
    assert "x-amz-checksum-sha256" in json.dumps(headers)


def test_a_folder_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "kept").write_text("a file")
    with pytest.raises(ObjectsError, match="cannot be written: "):
        FolderObjects(tmp_path / "kept").put("job/a", b"x")


def test_a_part_of_an_object_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(*_: object) -> None:
        raise OSError(5, "killed")

    monkeypatch.setattr(os, "link", killed)
    objects = FolderObjects(tmp_path)
    with pytest.raises(ObjectsError):
        objects.put("job/a", b"x")
    assert list(objects.names("")) == []


def test_a_bucket_that_is_right(cloud: S3) -> None:
    assert [(one.verdict, one.text) for one in cloud.check()] == [
        ("right", f"{cloud.scheme}://spotweave-tests/here: may be listed, written, read and deleted")
    ]
    assert cloud.calls(cloud.put) == cloud.calls(cloud.delete) == 0


def denied(right: str) -> dict[str, Any]:
    return {"denied": [right]}


GCS_RIGHTS = [f"storage.objects.{verb}" for verb in ("list", "create", "get", "delete")]


@pytest.mark.usefixtures("no_waits")
@pytest.mark.parametrize(
    ("made", "changes", "verdict", "words"),
    [
        (S3, {"buckets": []}, "missing", "s3://spotweave-tests/here: there is no such bucket: create it"),
        (S3, denied("s3:ListBucket"), "missing", "may not s3:ListBucket: attach what spotweave clouds"),
        (S3, denied("s3:DeleteObject"), "missing", "may not s3:DeleteObject: attach what spotweave clouds"),
        (S3, denied("iam:*"), "unknown", "rights cannot be simulated"),
        (S3, denied("sts:*"), "unknown", "rights cannot be simulated"),
        (Gcs, {"buckets": []}, "missing", "gs://spotweave-tests/here: there is no such bucket: create it"),
        *((Gcs, denied(right), "missing", f"may not {right}: grant") for right in GCS_RIGHTS),
        (
            Gcs,
            {"disabled": ["storage.googleapis.com"]},
            "missing",
            "the API storage.googleapis.com is not enabled: gcloud services enable storage.googleapis.com",
        ),
        (Gcs, {"token": "another"}, "missing", "does not accept these credentials, or they have"),
    ],
)
def test_what_is_missing_is_said(made: type[S3], changes: dict[str, Any], verdict: str, words: str) -> None:
    (found,) = made(**changes).check()
    assert found.verdict == verdict
    assert words in found.text
    assert "\n" not in found.text


@pytest.mark.parametrize(
    ("text", "bucket", "uri"),
    [
        ("s3://spotweave-1/a/b", Bucket("spotweave-1", "a/b"), "s3://spotweave-1/a/b"),
        ("s3a://spotweave-1/a/", Bucket("spotweave-1", "a"), "s3://spotweave-1/a"),
        ("s3://spotweave-1", Bucket("spotweave-1"), "s3://spotweave-1"),
        ("s3://spotweave-1/", Bucket("spotweave-1"), "s3://spotweave-1"),
        ("gs://spotweave-1/a/b/", Bucket("spotweave-1", "a/b", "gs"), "gs://spotweave-1/a/b"),
    ],
)
def test_buckets(text: str, bucket: Bucket, uri: str) -> None:
    found = parse(text)
    assert isinstance(found, Bucket)
    assert found == bucket
    assert (found.uri, found.spark_uri) == (uri, uri.replace("s3:", "s3a:"))
    assert f"{found.scheme}://{found.name}/{found.key('x/y')}" == f"{uri}/x/y"


@pytest.mark.parametrize(
    "text",
    [
        "kept",
        "",
        "s3:/bucket",
        "s3://",
        "s3://UPPER/a",
        "s3://ab",
        "s3://bucket//a",
        "s3n://bucket/a",
        "gs://UP",
    ],
)
def test_what_is_no_bucket_is_an_absolute_folder_or_refused_in_one_line(text: str) -> None:
    assert parse(f"/mnt/{text}") == Path("/mnt", text)
    with pytest.raises(ValueError, match="expected s3://BUCKET/PREFIX, gs://BUCKET/PREFIX or an") as caught:
        parse(text)
    assert repr(text) in str(caught.value)
    assert "\n" not in str(caught.value)


# What only Cloud Storage has: CRC32C, uploads in parts, and its own words for what is wrong.


BYTES = bytes(range(256)) * 100 + b"\r\n--=== \r\n"
LARGE = BYTES * 400
"""More than the 8 MiB that the client sends in one request."""


def test_the_published_crc32c_is_what_is_compared(project: Gcs) -> None:
    """RFC 3720, B.4: the CRC32C of 32 bytes of zeroes is aa 36 91 8a, least significant byte first."""
    project.objects().put("job/a", bytes(32))
    assert project.kept["here/job/a"].crc32c == "ipE2qg=="


def test_what_arrives_otherwise_is_not_kept(project: Gcs, monkeypatch: pytest.MonkeyPatch) -> None:
    # As if a byte was changed on the way: the service calculates another CRC32C than the client has sent.
    place = "google.cloud.storage._media._helpers.prepare_checksum_digest"
    monkeypatch.setattr(place, lambda digest: "AAAAAA==")
    with pytest.raises(ObjectsError, match=r"job/a: Provided CRC32C \"AAAAAA==\" doesn't match") as caught:
        project.objects().put("job/a", BYTES)
    assert "\n" not in str(caught.value)
    assert project.kept == {}


def test_what_is_read_otherwise_than_it_is_kept_is_an_error(project: Gcs) -> None:
    project.objects().put("job/a", BYTES)
    one = project.kept["here/job/a"]
    project.kept["here/job/a"] = replace(one, content=BYTES[:-1])
    with pytest.raises(ObjectsError, match="job/a: what arrived does not have its CRC32C"):
        project.objects().get("job/a")


@pytest.mark.parametrize("faults", [{}, {"error": 1.0, "most": 2}, {"lost": 1.0, "most": 3}])
def test_a_large_object_comes_in_parts_that_are_sent_again(
    project: Gcs, monkeypatch: pytest.MonkeyPatch, faults: dict[str, Any]
) -> None:
    monkeypatch.setattr("google.cloud.storage.blob._DEFAULT_CHUNKSIZE", 2**22)
    project.fail(actions=[project.put], **faults)
    project.objects().put("job/a", LARGE)
    # A session, and parts of 4 MiB: 10.2 MB are three.
    assert project.calls(project.put) >= 4
    assert project.kept["here/job/a"].content == LARGE
    with pytest.raises(ConflictError):
        project.objects().put("job/a", LARGE[:-1])


@pytest.mark.parametrize("act", ["put", "get", "names", "delete"])
def test_a_bucket_that_is_not_there_is_an_error_and_no_empty_place(project: Gcs, act: str) -> None:
    objects = project.objects("spotweave-none")
    given = {"put": ("a", b"x"), "get": ("a",), "names": ("",), "delete": ("a",)}[act]
    with pytest.raises(ObjectsError, match=r"^gs://spotweave-none/here.*: The specified bucket does not"):
        getattr(objects, act)(*given)


def test_every_call_is_for_a_permission_of_the_role(project: Gcs) -> None:
    from tests.deploy.test_guides import granted

    objects = project.objects()
    objects.put("job/a", BYTES)
    objects.names("")
    objects.delete("job/a")
    asked = {name.replace(":", ".", 1) for name in project.emulator.calls}
    assert asked == granted("checkpoints_role.yaml")
