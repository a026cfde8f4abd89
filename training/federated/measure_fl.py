"""`spotweave measure fl`: the slowdowns of this machine and of its link to another, really measured."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from spotweave.envs.documents.federations import read_application, read_clouds
from spotweave.envs.simulation.federations.clouds import Measurement
from spotweave.training.federated.measuring.dummy import Workload, device_named, machine, measure_rounds
from spotweave.training.federated.measuring.link import (
    VGG16,
    Exchanges,
    MeasureError,
    Sizes,
    Times,
    measure_exchanges,
    own_peer,
    parse_address,
)
from spotweave.training.federated.measuring.merging import (
    Change,
    CommunicationResult,
    ComputeResult,
    Result,
    merge,
    require_place,
    slowdown,
)

FORMAT = "spotweave-fl-measurement-1"
PARTS = ("compute", "communication")


@dataclass(frozen=True)
class Options:
    """What to measure and where the result goes. Its fields are the command's options."""

    into: Path | None = None
    vm_type: str | None = None
    region: str | None = None
    data_region: str | None = None
    data_directory: Path | None = None
    peer: str | None = None
    peer_region: str | None = None
    stop_peer: bool = False
    application: Path | None = None
    only: str | None = None
    baseline: bool = False
    baseline_s: float | None = None
    baseline_communication_s: float | None = None
    workload: Workload = field(default_factory=Workload)
    rounds: int = 4
    repetitions: int = 3
    device: str = "auto"

    @property
    def computes(self) -> bool:
        """Whether computation is measured."""
        return self.only != "communication"

    @property
    def communicates(self) -> bool:
        """Whether communication is measured."""
        return self.only != "compute"


def measure_fl(options: Options) -> tuple[dict[str, Any], list[str], list[Change]]:
    """Measure, and merge where a file is named. Whatever can be refused is refused before the first second.

    Returns the measurements as a document and as lines, and the changes of the file.

    Raises:
        FederationError: for the clouds.json, the app.json and names that are not in them.
        MeasureError: for options that do not fit and measurements that fail.
        WriteError: if the file cannot be written.
    """
    _require_fitting(options)
    device = device_named(options.device)
    sizes = Sizes.of(VGG16 if options.application is None else read_application(options.application).messages)
    host, port = (None, 0) if options.peer is None else parse_address(options.peer, "--peer")
    if options.into is not None:
        placeholder = Measurement(1.0, options.workload.text), Measurement(1.0, sizes.text)
        require_place(options.into, _results(options, *placeholder), baseline=options.baseline)

    document: dict[str, Any] = {"format": FORMAT, "machine": machine(device)}
    lines: list[str] = []
    compute = communication = None
    # The link first: it needs the other machine, which should not wait for this one's training.
    if options.communicates:
        repetitions = options.repetitions
        if host is None:
            with own_peer() as own:
                found = measure_exchanges("127.0.0.1", own, sizes, repetitions, stop=True)
        else:
            found = measure_exchanges(host, port, sizes, repetitions, stop=options.stop_peer)
        communication = Measurement(found.rounds.median_s, sizes.text)
        document["communication"] = _communication_document(options, sizes, found)
        lines += _communication_lines(options, sizes, found)
    if options.computes:
        compute, document["compute"] = _compute(options, device)
        lines += _compute_lines(document["compute"])
    changes: list[Change] = []
    if options.into is not None:
        changes = merge(options.into, _results(options, compute, communication), baseline=options.baseline)
    return document, lines, changes


def _require_fitting(options: Options) -> None:
    if options.only is not None and options.only not in PARTS:
        raise MeasureError(f"--only is {options.only!r}, expected {' or '.join(PARTS)}")
    for name, seconds, measured in (
        ("--baseline-s", options.baseline_s, options.computes),
        ("--baseline-communication-s", options.baseline_communication_s, options.communicates),
    ):
        if seconds is None:
            continue
        if not (math.isfinite(seconds) and seconds > 0):
            raise MeasureError(f"{name} is {seconds:g}, expected seconds above 0")
        if options.baseline:
            raise MeasureError(f"--baseline makes this measurement the baseline: leave out {name}")
        if not measured:
            raise MeasureError(f"{name} is for what --only {options.only} leaves out: leave out one of them")
    if not 1 <= options.repetitions <= 1000 or not 2 <= options.rounds <= 1000:
        raise MeasureError(
            f"{options.repetitions} repetitions of {options.rounds} rounds: expected 1 to 1000 repetitions "
            f"and 2 to 1000 rounds (the first is kept apart)"
        )
    if options.stop_peer and options.peer is None:
        raise MeasureError("--stop-peer ends the listener of --peer: give --peer HOST:PORT")
    if options.into is None:
        for option, given in (
            ("--baseline", options.baseline),
            ("--vm-type", options.vm_type),
            ("--region", options.region),
            ("--data-region", options.data_region),
            ("--peer-region", options.peer_region),
        ):
            if given:
                raise MeasureError(f"{option} is about a clouds.json: name it with --into")


def _results(
    options: Options, compute: Measurement | None, communication: Measurement | None
) -> list[Result]:
    """Pair the measurements with their places in the clouds file. Raises FederationError and MeasureError."""
    assert options.into is not None
    clouds = read_clouds(options.into)
    region = options.region
    if options.vm_type is not None:
        clouds.require_vm_type("--vm-type", options.vm_type)
        own = clouds.vm_type[options.vm_type].region
        if region is not None and region != own:
            clouds.require_region("--region", region)
            raise MeasureError(f"VM type {options.vm_type!r} is in region {own!r}, --region is {region!r}")
        region = own
    results: list[Result] = []
    if options.computes and compute is not None:
        if options.vm_type is None or region is None:
            raise MeasureError(
                "name the VM type that this machine is with --vm-type, or add --only communication"
            )
        data_region = options.data_region or region
        results.append(ComputeResult(options.vm_type, data_region, compute, options.baseline_s))
    if options.communicates and communication is not None:
        if region is None:
            raise MeasureError("name the region that this machine is in with --region")
        peer_region = options.peer_region or region
        if options.peer is None and peer_region != region:
            raise MeasureError(
                f"the link to region {peer_region!r} cannot be measured on one machine: start `spotweave "
                f"measure fl --listen HOST:PORT` there and give --peer HOST:PORT"
            )
        between = region, peer_region
        results.append(CommunicationResult(between, communication, options.baseline_communication_s))
    return results


def _compute(options: Options, device: str) -> tuple[Measurement, dict[str, Any]]:
    repetitions = measure_rounds(
        options.workload, options.rounds, options.repetitions, device, options.data_directory
    )
    later = [one for rounds in repetitions for one in rounds[1:]]
    first = Times.of([rounds[0].round_s for rounds in repetitions])
    whole = Times.of([one.round_s for one in later])
    document: dict[str, Any] = {
        "workload": options.workload.text,
        "round": whole._asdict(),
        "first_round": first._asdict(),
        "read": Times.of([one.read_s for one in later])._asdict(),
        "train": Times.of([one.train_s for one in later])._asdict(),
        "test": Times.of([one.test_s for one in later])._asdict(),
        "first_round_slowdown": slowdown(first.median_s, whole.median_s),
        "loss": [one.loss for one in repetitions[0]],
        "accuracy": [one.accuracy for one in repetitions[0]],
    }
    if options.baseline_s is not None:
        document["slowdown"] = slowdown(whole.median_s, options.baseline_s)
    return Measurement(whole.median_s, options.workload.text, first.median_s), document


def _compute_lines(document: dict[str, Any]) -> list[str]:
    whole = Times(**document["round"])
    return [
        f"computation    {document['workload']}",
        f"  round        {whole.text}{whole.warning}",
        f"  first round  {Times(**document['first_round']).text}",
        f"  first-round slowdown {document['first_round_slowdown']:g}, for rounds as long as these",
    ]


def _communication_document(options: Options, sizes: Sizes, found: Exchanges) -> dict[str, Any]:
    document: dict[str, Any] = {
        "workload": sizes.text,
        "peer": options.peer or "a process on this machine",
        "round": found.rounds._asdict(),
        "first_round_s": found.first_round_s,
        "messages": [
            {"message": name, "bytes": size} | times._asdict()
            for name, size, times in zip(sizes._fields, sizes, found.messages, strict=True)
        ],
    }
    if options.baseline_communication_s is not None:
        document["slowdown"] = slowdown(found.rounds.median_s, options.baseline_communication_s)
    return document


def _communication_lines(options: Options, sizes: Sizes, found: Exchanges) -> list[str]:
    lines = [f"communication  {sizes.text}"]
    if options.peer is None:
        lines.append(
            "  within this machine, no network between: for a region's own link use --listen and --peer"
        )
    for name, size, times in zip(sizes._fields, sizes, found.messages, strict=True):
        lines.append(f"  {name:<16}  {size:>12} bytes  {times.text}")
    return [*lines, f"  round             {found.rounds.text}{found.rounds.warning}"]
