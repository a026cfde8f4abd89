"""A place for objects as people write it: `s3://BUCKET/PREFIX`, or a folder."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

_BUCKET = r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]"
_PREFIX = r"[A-Za-z0-9!_.*'()-]+"
_S3 = re.compile(rf"s3a?://(?P<bucket>{_BUCKET})(?:/(?P<prefix>{_PREFIX}(?:/{_PREFIX})*))?/?")
"""Characters of keys that are safe everywhere:
https://docs.aws.amazon.com/AmazonS3/latest/userguide/object-keys.html
"""


@dataclass(frozen=True)
class Bucket:
    """A bucket of S3 and what names in it begin with.

    Attributes:
        name: of the bucket.
        prefix: without a slash at its ends; "" for none.
    """

    name: str
    prefix: str = ""

    @property
    def uri(self) -> str:
        """As the AWS tools write it."""
        return f"s3://{self.name}/{self.prefix}".rstrip("/")

    @property
    def spark_uri(self) -> str:
        """As Hadoop's client writes it."""
        return f"s3a{self.uri.removeprefix('s3')}"

    def key(self, name: str) -> str:
        """Of the object with this name."""
        return f"{self.prefix}/{name}" if self.prefix else name


def parse(text: str) -> Bucket | Path:
    """What was meant.

    Raises:
        ValueError: one line, if it is neither.
    """
    if found := _S3.fullmatch(text):
        return Bucket(found["bucket"], found["prefix"] or "")
    if Path(text).is_absolute():
        return Path(text)
    raise ValueError(
        f"{text!r} is no place for checkpoints: expected s3://BUCKET/PREFIX or an absolute folder"
    )
