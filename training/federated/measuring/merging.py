"""Measured seconds into a clouds.json: what was there stays, what changes is told."""

from __future__ import annotations

import copy
import json
import os
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from spotweave.envs.documents.federations import clouds_of, read_clouds
from spotweave.envs.simulation.federations.application import FederationError
from spotweave.envs.simulation.federations.clouds import Clouds, Measurement
from spotweave.training.federated.measuring.link import MeasureError
from spotweave.training.files import replacing

Document = dict[str, Any]
_Key = TypeVar("_Key")


@dataclass(frozen=True)
class Change:
    """One slowdown before and after; None where there was none."""

    what: str
    old: float | None
    new: float

    @property
    def text(self) -> str:
        """Text for people."""
        return f"{self.what}: {'none' if self.old is None else f'{self.old:g}'} -> {self.new:g}"


@dataclass(frozen=True)
class ComputeResult:
    """Seconds on a VM type with data in a region. `baseline_s` replaces the baseline in the file."""

    vm_type: str
    data_region: str
    measurement: Measurement
    baseline_s: float | None = None


@dataclass(frozen=True)
class CommunicationResult:
    """Seconds between two regions. `baseline_s` replaces the baseline in the file."""

    between: tuple[str, str]
    measurement: Measurement
    baseline_s: float | None = None


Result = ComputeResult | CommunicationResult


def slowdown(seconds: float, baseline_s: float) -> float:
    """Seconds here divided by those of the baseline, to four digits: more were never measured."""
    return float(f"{seconds / baseline_s:.4g}")


def require_place(path: Path, results: list[Result], *, baseline: bool) -> None:
    """Refuse before anything is measured what `merge` would refuse afterwards.

    The seconds in `results` do not matter, their places and workloads do.

    Raises:
        FederationError: for a bad file, unknown names, a missing baseline and one that others contradict.
        MeasureError: if the file cannot be written.
    """
    _merged(_document(path), results, baseline=baseline)
    try:
        if not os.access(path, os.W_OK):
            raise PermissionError("it is read-only")
        # Only a file made there proves that the directory lets one be made.
        with tempfile.NamedTemporaryFile(dir=path.resolve().parent, prefix=".probe."):
            pass
    except OSError as error:
        raise MeasureError(
            f"cannot write {path}: {error.strerror or error}; nothing was measured, give a file you may write"
        ) from error


def merge(path: Path, results: list[Result], *, baseline: bool) -> list[Change]:
    """Write the results into the file, whole or not at all; every slowdown that was set, in its order.

    A new baseline divides the slowdowns of the same workload again.

    Raises:
        FederationError: as `require_place`.
        WriteError: if the file cannot be written; it is as it was.
    """
    document, changes = _merged(_document(path), results, baseline=baseline)
    content = written(document)
    with replacing(path.resolve()) as temporary:
        temporary.write_text(content, encoding="utf-8")
        shutil.copymode(path, temporary)
    return changes


def written(document: Document) -> str:
    """JSON with a line for each provider, region, VM type and row of slowdowns, as people write it."""

    def lines(value: Any, depth: int) -> str:
        items = list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else []
        if not items or (depth > 1 and not any(isinstance(item, dict) for item in items)):
            return json.dumps(value, ensure_ascii=False, allow_nan=False)
        texts = [lines(item, depth + 1) for item in items]
        if isinstance(value, dict):
            names = [json.dumps(name, ensure_ascii=False) for name in value]
            texts = [f"{name}: {text}" for name, text in zip(names, texts, strict=True)]
        begin, end = "{}" if isinstance(value, dict) else "[]"
        inner = ",\n".join("  " * (depth + 1) + text for text in texts)
        return f"{begin}\n{inner}\n{'  ' * depth}{end}"

    return lines(document, 0) + "\n"


def _document(path: Path) -> Document:
    read_clouds(path)  # its errors name the file
    document: Document = json.loads(path.read_text(encoding="utf-8"))
    return document


def _merged(document: Document, results: list[Result], *, baseline: bool) -> tuple[Document, list[Change]]:
    before = clouds_of(document)
    merged = copy.deepcopy(document)
    for result in results:
        if isinstance(result, ComputeResult):
            _merge_compute(merged, before, result, baseline=baseline)
        else:
            _merge_communication(merged, before, result, baseline=baseline)
    return merged, _changes(before, clouds_of(merged), results)


def _merge_compute(document: Document, clouds: Clouds, result: ComputeResult, *, baseline: bool) -> None:
    clouds.require_vm_type("--vm-type", result.vm_type)
    clouds.require_region("--data-region", result.data_region)
    rows = document["compute_slowdowns"]
    seconds = _below(_below(document, "measured"), "compute")
    reference = _Reference(
        clouds.measured.baseline_vm_type, result.baseline_s, "VM type", repr, "--baseline-s"
    )
    reference.require(result.vm_type, list(rows.values()), baseline=baseline)
    slowdowns, measured = rows.setdefault(result.data_region, {}), _below(seconds, result.data_region)
    reference.divide(result.vm_type, result.measurement, slowdowns, measured, baseline=baseline)
    if baseline:
        _below(document["measured"], "baseline")["vm_type"] = result.vm_type


def _merge_communication(
    document: Document, clouds: Clouds, result: CommunicationResult, *, baseline: bool
) -> None:
    for name, option in zip(result.between, ("--region", "--peer-region"), strict=True):
        clouds.require_region(option, name)
    entries = document["communication_slowdowns"]
    measured = _below(document, "measured")
    slowdowns = {_pair(entry["between"]): entry["slowdown"] for entry in entries}
    seconds = {_pair(entry["between"]): entry for entry in measured.get("communication") or ()}
    stored = clouds.measured.baseline_between
    reference = _Reference(
        None if stored is None else _pair(stored),
        result.baseline_s,
        "pair of regions",
        lambda pair: f"{pair[0]!r} & {pair[1]!r}",
        "--baseline-communication-s",
    )
    pair = _pair(result.between)
    reference.require(pair, [slowdowns], baseline=baseline)
    reference.divide(pair, result.measurement, slowdowns, seconds, baseline=baseline)
    for entry in entries:
        entry["slowdown"] = slowdowns[_pair(entry["between"])]
    if pair not in [_pair(entry["between"]) for entry in entries]:
        entries.append({"between": list(result.between), "slowdown": slowdowns[pair]})
    measured["communication"] = [{"between": list(key)} | entry for key, entry in seconds.items()]
    if baseline:
        _below(measured, "baseline")["between"] = list(result.between)


@dataclass(frozen=True)
class _Reference(Generic[_Key]):
    stored: _Key | None
    given_s: float | None
    what: str
    shown: Callable[[_Key], str]
    option: str

    def require(self, key: _Key, rows: list[dict[_Key, float]], *, baseline: bool) -> None:
        """Refuse a baseline that slowdowns in the file contradict: they were divided by another's seconds."""
        if not baseline:
            if key == self.stored:
                raise FederationError(
                    f"{self.what} {self.shown(key)} is the baseline: measure it again with --baseline"
                )
            return
        if self.stored is not None and key != self.stored:
            raise FederationError(
                f"{self.what} {self.shown(self.stored)} is the baseline, not {self.shown(key)}: measure that "
                f'one with --baseline, or remove the slowdowns and "measured" to start over'
            )
        for row in rows:
            if self.stored is None and row and row.get(key) != 1:
                ones = " or ".join(self.shown(name) for name, value in row.items() if value == 1)
                raise FederationError(
                    f"{self.what} {self.shown(key)} is not the baseline of the slowdowns in the file: "
                    f"measure {ones or 'the one that is'} with --baseline, or remove them to start over"
                )

    def divide(
        self,
        key: _Key,
        measurement: Measurement,
        slowdowns: dict[_Key, float],
        seconds: dict[_Key, Document],
        *,
        baseline: bool,
    ) -> None:
        """Put the measurement into `seconds` and what follows from it into `slowdowns`."""
        entry = {"round_s": measurement.round_s, "first_round_s": measurement.first_round_s}
        entry = {name: value for name, value in entry.items() if value is not None}
        seconds[key] = entry | {"workload": measurement.workload}
        if not baseline:
            slowdowns[key] = slowdown(measurement.round_s, self._baseline_s(measurement.workload, seconds))
            return
        for name, other in seconds.items():
            if other["workload"] == measurement.workload and name in {*slowdowns, key}:
                slowdowns[name] = slowdown(other["round_s"], measurement.round_s)

    def _baseline_s(self, workload: str, seconds: dict[_Key, Document]) -> float:
        if self.given_s is not None:
            return self.given_s
        found = None if self.stored is None else seconds.get(self.stored)
        todo = f"run the same on the baseline with --baseline first, or give {self.option}"
        if found is None:
            raise FederationError(f"the file has no seconds of a baseline {self.what} for this: {todo}")
        if found["workload"] != workload:
            raise FederationError(f"the baseline ran [{found['workload']}], this is [{workload}]: {todo}")
        return float(found["round_s"])


def _below(document: Document, key: str) -> Document:
    found: Document = document.get(key) or {}
    document[key] = found
    return found


def _pair(between: list[str] | tuple[str, str]) -> tuple[str, str]:
    first, second = sorted(between)
    return first, second


def _changes(before: Clouds, after: Clouds, results: list[Result]) -> list[Change]:
    set_here = {
        (result.data_region, result.vm_type) if isinstance(result, ComputeResult) else _pair(result.between)
        for result in results
    }
    changes = []
    for region, row in after.compute_slowdowns.items():
        for name, new in row.items():
            old = before.compute_slowdowns.get(region, {}).get(name)
            if old != new or (region, name) in set_here:
                changes.append(Change(f"compute slowdown of {name} with data in {region}", old, new))
    for pair, new in after.communication_slowdowns.items():
        old = before.communication_slowdowns.get(pair)
        if old != new or _pair(pair) in set_here:
            changes.append(Change(f"communication slowdown of {' & '.join(pair)}", old, new))
    return changes
