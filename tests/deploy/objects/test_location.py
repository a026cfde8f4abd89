"""How people write where objects are."""

from __future__ import annotations

from pathlib import Path

import pytest

from deploy.objects.location import Bucket, parse


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
    assert found == bucket
    assert isinstance(found, Bucket)
    assert (found.uri, found.spark_uri) == (uri, uri.replace("s3:", "s3a:"))
    assert f"{found.scheme}://{found.name}/{found.key('x/y')}" == f"{uri}/x/y"


def test_a_folder_is_absolute() -> None:
    assert parse("/mnt/kept") == Path("/mnt/kept")


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
        "gs://UPPER",
    ],
)
def test_everything_else_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(
        ValueError, match="expected s3://BUCKET/PREFIX, gs://BUCKET/PREFIX or an absolute"
    ) as caught:
        parse(text)
    assert repr(text) in str(caught.value)
    assert "\n" not in str(caught.value)
