"""Lines such as `1700000000 up 0.31`: Unix time, up or down, price per hour."""

from datetime import UTC, datetime

import numpy as np

from spotweave.envs.simulation.series import Polarity
from spotweave.envs.traces.format import MarketMeta, MarketTrace
from spotweave.envs.traces.importers import region_of
from spotweave.envs.traces.storage import TraceError


def import_uptime_log(path, options):
    """One trace: that of the zone and instance type that the options name."""
    rows = [line.split() for line in path.read_text().splitlines()]
    if not rows or any(len(row) != 3 or row[1] not in ("up", "down") for row in rows):
        raise TraceError(f"{path}: expected lines of a Unix time, up or down, and a price")
    times = np.array([int(row[0]) for row in rows])
    meta = MarketMeta(
        provider=options.provider,
        region=region_of(options.zone),
        zone=options.zone,
        instance_type=options.instance_type,
        market=options.market,
        start_utc=datetime.fromtimestamp(int(times[0]), UTC),
        source=options.source or path.name,
        licence=options.licence,
        polarity=Polarity.AVAILABLE,
    )
    up = np.array([row[1] == "up" for row in rows])
    return [MarketTrace(meta, times - times[0], up, np.array([float(row[2]) for row in rows]))]
