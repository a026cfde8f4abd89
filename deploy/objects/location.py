"""A place for objects as people write it: `s3://BUCKET/PREFIX`, `gs://BUCKET/PREFIX`, or a folder."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

_BUCKET = r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]"
_PREFIX = r"[A-Za-z0-9!_.*'()-]+"
_PLACE = re.compile(
    rf"(?P<scheme>s3|s3a|gs)://(?P<bucket>{_BUCKET})(?:/(?P<prefix>{_PREFIX}(?:/{_PREFIX})*))?/?"
)
"""Characters of keys that are safe everywhere:
https://docs.aws.amazon.com/AmazonS3/latest/userguide/object-keys.html

Cloud Storage also takes `_` in a bucket's name; what both take is enough.
"""


@dataclass(frozen=True)
class Bucket:
    """A bucket of S3 or of Cloud Storage, and what names in it begin with.

    Attributes:
        name: of the bucket.
        prefix: without a slash at its ends; "" for none.
        scheme: whose it is: "s3" or "gs" (Cloud Storage).
    """

    name: str
    prefix: str = ""
    scheme: Literal["s3", "gs"] = "s3"

    @property
    def uri(self) -> str:
        """As the clouds' own tools write it."""
        return f"{self.scheme}://{self.name}/{self.prefix}".rstrip("/")

    @property
    def spark_uri(self) -> str:
        """As Hadoop's client writes it."""
        return f"s3a{self.uri.removeprefix('s3')}" if self.scheme == "s3" else self.uri

    def key(self, name: str) -> str:
        """Of the object with this name."""
        return f"{self.prefix}/{name}" if self.prefix else name


def parse(text: str) -> Bucket | Path:
    """What was meant.

    Raises:
        ValueError: one line, if it is neither.
    """
    if found := _PLACE.fullmatch(text):
        return Bucket(found["bucket"], found["prefix"] or "", "gs" if found["scheme"] == "gs" else "s3")
    if Path(text).is_absolute():
        return Path(text)
    raise ValueError(
        f"{text!r} is no place for checkpoints: expected s3://BUCKET/PREFIX, gs://BUCKET/PREFIX or an "
        "absolute folder"
    )
