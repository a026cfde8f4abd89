"""The published measurements and placements of Multi-FedLS (Brum 2022, 2023). Each file names its tables."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from envs.documents.federations import read_application, read_clouds
from envs.simulation.federations.application import FederationError, FlApplication
from envs.simulation.federations.clouds import Clouds

DIRECTORY = Path(__file__).parent


def clouds_names() -> tuple[str, ...]:
    """Names that `load_clouds` knows."""
    return _names("clouds_")


def application_names() -> tuple[str, ...]:
    """Names that `load_application` knows."""
    return _names("app_")


@cache
def load_clouds(name: str) -> Clouds:
    """Published clouds: "aws_gcp" (13 types, Table 7.1) or "cloudlab" (23 types, Table 7.2).

    Raises:
        FederationError: for another name.
    """
    return read_clouds(_path("clouds_", name))


@cache
def load_application(name: str) -> FlApplication:
    """A published application, e.g. "til_aws4" (Tables 7.8-7.10), "til_cloudlab", "shakespeare" or "femnist".

    Raises:
        FederationError: for another name.
    """
    return read_application(_path("app_", name))


def published_placements() -> dict[str, Any]:
    """Tables 7.8 to 7.10, and the maps of the authors' own planner: parsed published_initial_mapping.json."""
    document: dict[str, Any] = json.loads((DIRECTORY / "published_initial_mapping.json").read_text("utf-8"))
    return document


def measured_times() -> dict[str, Any]:
    """The seconds that the published slowdowns were computed from: parsed measured_times.json."""
    document: dict[str, Any] = json.loads((DIRECTORY / "measured_times.json").read_text("utf-8"))
    return document


def _names(prefix: str) -> tuple[str, ...]:
    return tuple(sorted(path.stem.removeprefix(prefix) for path in DIRECTORY.glob(f"{prefix}*.json")))


def _path(prefix: str, name: str) -> Path:
    names = _names(prefix)
    if name not in names:
        raise FederationError(f"no published data are named {name!r}: use one of {', '.join(names)}")
    return DIRECTORY / f"{prefix}{name}.json"
