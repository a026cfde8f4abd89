"""Brum 2023, Tables 7.14 to 7.18 in simulation, and how long mapping and simulation take."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

from training.config import UsageError
from training.federated.multi_fedls_tables import RUNS, multi_fedls_tables
from training.studies.federated.study import Study
from training.studies.keeping import ROOT

REVOCATIONS = "table_7_14_to_7_18"
SETS = 100
TABLES = ("7.14", "7.15", "7.16", "7.17", "7.18")
SCALING = "table_scaling"
BENCHMARKS = ("initial_mapping", "federated_rounds")


def make_revocations(study: Study) -> dict[str, Any]:
    """Every row, by `multi_fedls_tables`; each of the five tables is kept by itself."""
    sets = study.count(SETS)
    rows: list[dict[str, Any]] = []
    for number in TABLES:
        identity = {"section": REVOCATIONS, "table": number, "sets": sets}
        held = study.keeper.keep(identity, partial(_table, number, sets))
        study.progress(f"{REVOCATIONS}, Table {number}: sets of {RUNS} runs", sets, sets)
        rows += held["rows"]
    return {"seeds": sets, "runs": RUNS, "rows": rows}


def _table(number: str, sets: int) -> dict[str, Any]:
    return {"rows": [row.document() for row in multi_fedls_tables(sets, [number])]}


def make_scaling(study: Study) -> dict[str, Any]:
    """What the benchmarks measure on this machine.

    Raises:
        UsageError: if they fail.
    """

    def measure() -> dict[str, Any]:
        with tempfile.TemporaryDirectory() as folder:
            target = Path(folder) / "measured.json"
            command = [sys.executable, "-m", "benchmarks", *_words(), "--out", str(target)]
            done = subprocess.run(command, cwd=ROOT, stdout=subprocess.DEVNULL, check=False)
            if done.returncode:
                raise UsageError(f"{' '.join(command[1:])} ended with exit code {done.returncode}")
            measured: dict[str, Any] = json.loads(target.read_text(encoding="utf-8"))
        return measured

    measured = study.keeper.keep({"section": SCALING}, measure)
    study.progress(f"{SCALING}: benchmarks", len(BENCHMARKS), len(BENCHMARKS))
    return {
        "benchmark": f"python -m benchmarks {' '.join(_words())}",
        "measured_at": measured["measured_at"],
        "measured_commit": measured["commit"],
        "machine": measured["machine"],
        "rows": [row for name in BENCHMARKS for row in measured["benchmarks"][name]],
    }


def _words() -> list[str]:
    return [word for name in BENCHMARKS for word in ("--only", name)]
