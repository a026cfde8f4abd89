"""The trace format of jobs: trace.json and jobs.csv in a folder (docs/traces.md)."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from envs.simulation.series import Ints
from envs.traces.market import JOB_FORMAT, number
from envs.traces.storage import TraceError, read_csv, read_json

FORMAT_VERSION = 1

_COLUMNS = ("arrival_s", "duration_s", "executors")


@dataclass(frozen=True)
class JobTrace:
    """Recorded jobs in the order of their arrival.

    Attributes:
        source: where the data come from.
        licence: under which licence.
        arrival_s: (n,) seconds from the first arrival, never decreasing; several may be equal.
        duration_s: (n,) positive seconds.
        executors: (n,) positive counts.
    """

    source: str
    licence: str
    arrival_s: Ints
    duration_s: Ints
    executors: Ints


def load_jobs(path: str | Path) -> JobTrace:
    """Read and check a job trace.

    Args:
        path: folder that holds trace.json and jobs.csv.

    Raises:
        TraceError: in one line, with file and line, for whatever docs/traces.md forbids.
    """
    folder = Path(path)
    if not (folder / "trace.json").is_file():
        raise TraceError(f"{folder} is no trace: it has no trace.json (see docs/traces.md)")
    raw = read_json(folder / "trace.json")
    if not isinstance(raw, dict) or raw.get("format") != JOB_FORMAT:
        raise TraceError(f'{folder / "trace.json"} is no job trace: expected "format": "{JOB_FORMAT}"')
    if raw.get("format_version") != FORMAT_VERSION:
        raise TraceError(f"{folder / 'trace.json'}: this release reads format_version {FORMAT_VERSION}")
    where = str(folder / "jobs.csv")
    rows = read_csv(Path(where), required=_COLUMNS, optional=())
    table = np.empty((len(rows), len(_COLUMNS)), dtype=np.int64)
    for index, (line, row) in enumerate(rows):
        for position, (column, least) in enumerate(zip(_COLUMNS, (0, 1, 1), strict=True)):
            value = number(where, line, column, row[column])
            if not (value >= least and value == value // 1):
                raise TraceError(
                    f"{where} line {line}: {column} {row[column]}: expected a whole number >= {least}"
                )
            table[index, position] = int(value)
        if index and table[index, 0] < table[index - 1, 0]:
            raise TraceError(f"{where} line {line}: arrival after a later one: sort the rows by arrival_s")
    return JobTrace(
        str(raw.get("source", "")), str(raw.get("licence", "")), table[:, 0], table[:, 1], table[:, 2]
    )


def job_files(trace: JobTrace) -> dict[str, str]:
    """trace.json and jobs.csv of a job trace as texts, for `storage.write_directory`."""
    raw = {
        "format": JOB_FORMAT,
        "format_version": FORMAT_VERSION,
        "source": trace.source,
        "licence": trace.licence,
    }
    table = np.stack([trace.arrival_s, trace.duration_s, trace.executors], axis=1).tolist()
    lines = [",".join(_COLUMNS), *(",".join(map(str, row)) for row in table)]
    return {"trace.json": json.dumps(raw, indent=2) + "\n", "jobs.csv": "\n".join(lines) + "\n"}
