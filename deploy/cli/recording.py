"""`spotweave record`: what a deployment saw of its market, as traces to train on."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path

from deploy.cli.clouds import require_served
from deploy.cli.tables import show
from deploy.config import DeploymentConfig
from deploy.providers.config import Place
from deploy.recording import Recording, RecordingError, record, write
from deploy.service import open_store

_HOUR_S = 3_600.0


def run(path: Path, out: Path, since: str | None) -> None:
    """Write them and print a line for each.

    Args:
        path: of the deployment's file.
        out: folder to make.
        since: ISO 8601; without an offset UTC. None: from the beginning.

    Raises:
        ValueError: one line, if there is nothing to record, or it cannot be written.
    """
    config = DeploymentConfig.load(path)
    since_s = 0.0 if since is None else _moment(since)
    places = _places(config, path)
    require_served(config, path)
    with open_store(config, time.time()) as store:
        recordings = record(store, places, since_s)
        if not recordings:
            raise RecordingError(
                f"{path}: nothing was seen of its cloud offers"
                + (" yet" if since is None else f" since {since}")
            )
        emulated = ", on emulated clouds" if config.emulators else ""
        write(recordings, out, f"Spotweave deployment {store.deployment_id}: what it saw{emulated}")
    rows = [
        (
            one.place.zone or one.place.region,
            one.place.instance_type,
            one.place.market,
            f"{one.rows[-1].time_s / _HOUR_S:.1f}",
            str(len(one.rows)),
            _share(one),
        )
        for one in recordings
    ]
    show(("ZONE", "TYPE", "MARKET", "HOURS>", "ROWS>", "AVAILABLE>"), rows, "")


def _places(config: DeploymentConfig, path: Path) -> dict[str, Place]:
    """The offers of the clouds: what the local provider has is made from recordings as it is."""
    recorded = [one for one in config.rented().values() if one.recorded]
    if not recorded:
        raise RecordingError(f"{path} rents from no cloud: only what is seen there is recorded")
    return {offer_id: place for one in recorded for offer_id, place in one.places().items()}


def _moment(text: str) -> float:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise RecordingError(
            f"--since {text!r} is not a time: expected ISO 8601, 2026-01-31 or 2026-01-31T12:00:00Z"
        ) from error
    return (moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment).timestamp()


def _share(one: Recording) -> str:
    """Of the time, that it was available."""
    span_s = one.rows[-1].time_s - one.rows[0].time_s
    if one.rows[0].available is None or not span_s:
        return "-"
    up_s = sum(
        after.time_s - row.time_s for row, after in zip(one.rows, one.rows[1:], strict=False) if row.available
    )
    return f"{up_s / span_s:.1%}"
