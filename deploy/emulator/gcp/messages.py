"""What an emulated Google Cloud is asked, and what it answers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Request:
    """What was asked for.

    Attributes:
        method: of HTTP.
        path: decoded.
        query: parameters; the values of one that is repeated are joined by commas.
        headers: by their names in lower case.
        content: the body.
    """

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    content: bytes


@dataclass(frozen=True)
class Answer:
    """What is answered: JSON where no header says otherwise."""

    content: bytes
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)


def json_answer(found: Mapping[str, object], status: int = 200) -> Answer:
    """An object of JSON."""
    return Answer(json.dumps(found).encode(), status)
