"""What only Cloud Storage has: generations, CRC32C, uploads in parts, and its own words for what is wrong."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from deploy.objects.location import ConflictError, ObjectsError
from tests.deploy.objects.buckets import Gcs

CONTENT = bytes(range(256)) * 100 + b"\r\n--=== \r\n"
LARGE = CONTENT * 400
"""More than the 8 MiB that the client sends in one request."""


def test_the_same_twice_is_one_generation_and_other_content_changes_nothing(project: Gcs) -> None:
    objects, generations = project.objects(), set()
    for content in (CONTENT, CONTENT, b"other"):
        with suppress(ConflictError):
            objects.put("job/a", content)
        generations.add(project.kept["here/job/a"].generation)
    assert len(generations) == 1


def test_the_published_crc32c_is_what_is_compared(project: Gcs) -> None:
    """RFC 3720, B.4: the CRC32C of 32 bytes of zeroes is aa 36 91 8a, least significant byte first."""
    project.objects().put("job/a", bytes(32))
    assert project.kept["here/job/a"].crc32c == "ipE2qg=="


def test_what_arrives_otherwise_is_not_kept(project: Gcs, monkeypatch: pytest.MonkeyPatch) -> None:
    # As if a byte was changed on the way: the service calculates another CRC32C than the client has sent.
    place = "google.cloud.storage._media._helpers.prepare_checksum_digest"
    monkeypatch.setattr(place, lambda digest: "AAAAAA==")
    with pytest.raises(ObjectsError, match=r"job/a: Provided CRC32C \"AAAAAA==\" doesn't match") as caught:
        project.objects().put("job/a", CONTENT)
    assert "\n" not in str(caught.value)
    assert project.kept == {}


def test_what_is_read_otherwise_than_it_is_kept_is_an_error(project: Gcs) -> None:
    project.objects().put("job/a", CONTENT)
    one = project.kept["here/job/a"]
    project.kept["here/job/a"] = replace(one, content=CONTENT[:-1])
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


def test_throttling_is_waited_for(project: Gcs, monkeypatch: pytest.MonkeyPatch) -> None:
    project.fail(calls_per_s=0.001, burst=1)
    waits = []

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        project.emulator.world.clock.sleep(10_000.0)

    monkeypatch.setattr("google.api_core.retry.retry_unary.time.sleep", sleep)
    assert project.objects().get("none") is None
    assert project.objects().get("none") is None
    assert len(waits) == project.emulator.faults.counts["throttled"] == 1


@pytest.mark.parametrize("act", ["put", "get", "names", "delete"])
def test_a_bucket_that_is_not_there_is_an_error_and_no_empty_place(project: Gcs, act: str) -> None:
    objects = project.objects("spotweave-none")
    given = {"put": ("a", b"x"), "get": ("a",), "names": ("",), "delete": ("a",)}[act]
    with pytest.raises(ObjectsError, match=r"^gs://spotweave-none/here.*: The specified bucket does not"):
        getattr(objects, act)(*given)


def test_every_call_is_for_a_permission_of_the_role(project: Gcs) -> None:
    from tests.deploy.test_guides import granted

    objects = project.objects()
    objects.put("job/a", CONTENT)
    objects.names("")
    objects.delete("job/a")
    asked = {name.replace(":", ".", 1) for name in project.emulator.calls}
    assert asked == granted("checkpoints_role.yaml")
