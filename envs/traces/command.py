"""`spotweave traces`: build and fit what ships, import users' files, show what is there."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import NoReturn, get_args

import numpy as np

from spotweave.envs.traces.bundle import DATA_DIR, DAY_S, FITTED_PATH, TraceBundle, load_bundle
from spotweave.envs.traces.format import (
    JOB_FORMAT,
    Market,
    MarketTrace,
    job_files,
    load_jobs,
    load_traces,
    merged,
    trace_files,
)
from spotweave.envs.traces.importers import (
    ImportOptions,
    OnDemandPrices,
    SpotPrice,
    import_swf,
    market_importers,
    parse_usd_hour,
    with_on_demand,
    with_spot_price,
)
from spotweave.envs.traces.storage import TraceError, read_json, write_directory
from spotweave.mistakes import one_line_errors


class _Parser(argparse.ArgumentParser):
    """Complains in one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"error: {message} (see {self.prog} --help)\n")


@one_line_errors()
def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit code."""
    options = _parser().parse_args(arguments)
    if options.command == "build":
        # Only these two need pandas and scipy, which take a second to import.
        from spotweave.envs.traces.build_bundle import build_bundle

        build_bundle(options.source, options.out)
    elif options.command == "fit":
        from spotweave.envs.traces.fit import fit

        fit(options.source, options.out)
    elif options.command == "import":
        _import(options)
    else:
        print(_show(options.path))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="spotweave traces", description="Recorded markets and jobs (docs/traces.md).")
    commands = parser.add_subparsers(dest="command", required=True, parser_class=_Parser)
    build = commands.add_parser("build", help="build the shipped bundle from the raw collections")
    build.add_argument("--source", type=Path, required=True, help="folder of the raw collections")
    build.add_argument("--out", type=Path, default=DATA_DIR)
    fit = commands.add_parser("fit", help="fit the shipped distributions to the raw collections")
    fit.add_argument("--source", type=Path, required=True, help="folder of the raw collections")
    fit.add_argument("--out", type=Path, default=FITTED_PATH)
    take = commands.add_parser("import", help="turn files into traces")
    take.add_argument("source_files", type=Path, metavar="SOURCE", nargs="+", help="files of one format")
    take.add_argument("--format", choices=[*market_importers(), "swf"], required=True)
    take.add_argument("--out", type=Path, required=True, help="folder to create")
    take.add_argument("--polarity", help="what a 1 means: available or unavailable")
    take.add_argument("--provider", default="aws")
    take.add_argument("--zone", default="", help="for files that do not name it")
    take.add_argument("--instance-type", default="", help="for files that do not name it")
    take.add_argument("--market", choices=get_args(Market), default="spot")
    take.add_argument("--start-utc", help="for files without absolute time, ISO 8601")
    take.add_argument(
        "--tick-s", type=_positive, help="seconds between two probes; leave out if rows are changes"
    )
    take.add_argument(
        "--max-gap-s", type=_positive, help="rows further apart are an error (default: 2 ticks)"
    )
    take.add_argument(
        "--on-demand",
        type=_on_demand,
        default="list",
        metavar="list|none|USD",
        help="on-demand offers too, at the prices of the list that ships (default), or none; "
        "USD an hour: the price of instance types that the list does not have",
    )
    take.add_argument(
        "--price",
        type=_spot_price,
        metavar="USD|SHARE%",
        help="for files of availability only: USD an hour, or a share of the on-demand price, e.g. 30%%",
    )
    take.add_argument("--source", default="", help="where the data come from (default: the file's name)")
    take.add_argument("--licence", default="")
    show = commands.add_parser("show", help="list what a trace, a folder of traces or the bundle holds")
    show.add_argument("path", type=Path, nargs="?", help="default: the shipped bundle")
    return parser


def _positive(text: str) -> int:
    value = int(text)
    if value <= 0:
        raise argparse.ArgumentTypeError(f"{value} is not positive")
    return value


def _on_demand(text: str) -> str | float:
    try:
        return text if text in ("list", "none") else parse_usd_hour(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r}: expected list, none or USD an hour above 0, e.g. 3.06"
        ) from None


def _spot_price(text: str) -> SpotPrice:
    try:
        amount = parse_usd_hour(text.removesuffix("%"))
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r}: expected USD an hour above 0, e.g. 0.92, or a share of on demand, e.g. 30%"
        ) from None
    return SpotPrice(amount / 100.0, is_share=True) if text.endswith("%") else SpotPrice(amount)


def _import(options: argparse.Namespace) -> None:
    details = ImportOptions(**{field.name: getattr(options, field.name) for field in fields(ImportOptions)})
    if options.format == "swf":
        if len(options.source_files) > 1:
            raise TraceError(f"{len(options.source_files)} job logs were given: import one at a time")
        jobs = import_swf(options.source_files[0], details)
        write_directory(options.out, job_files(jobs))
        print(f"{options.out}: {len(jobs.arrival_s)} jobs over {jobs.arrival_s[-1] / DAY_S:.1f} days")
        return
    traces = _with_prices(_imported(options, details), options)
    if len(traces) == 1:
        write_directory(options.out, trace_files(traces[0]))
    else:
        files = {
            f"{_folder(trace)}/{name}": text for trace in traces for name, text in trace_files(trace).items()
        }
        write_directory(options.out, files)
    print(_table(traces))
    if any(trace.price_usd_hour is None for trace in traces):
        print(
            "Without spot prices no market can be built on it: import it again with --price, e.g. --price 30%"
        )


def _imported(options: argparse.Namespace, details: ImportOptions) -> list[MarketTrace]:
    """What the files hold, by offer: several files may be of the same one."""
    found: dict[tuple[str, ...], tuple[MarketTrace, Path]] = {}
    for path in options.source_files:
        for trace in market_importers()[options.format](path, details):
            if trace.meta.offer in found:
                trace = merged(*found[trace.meta.offer], trace, path)
            found[trace.meta.offer] = trace, path
    return [trace for trace, _ in found.values()]


def _with_prices(traces: list[MarketTrace], options: argparse.Namespace) -> list[MarketTrace]:
    given = options.on_demand if isinstance(options.on_demand, float) else None
    prices = OnDemandPrices(load_bundle(), given)
    if options.price is not None:
        traces = with_spot_price(traces, options.price, prices)
    return traces if options.on_demand == "none" else with_on_demand(traces, prices)


def _folder(trace: MarketTrace) -> str:
    meta = trace.meta
    market = meta.market if meta.market == "on_demand" else ""
    return "_".join(part for part in (meta.zone or meta.region, meta.instance_type, market) if part).replace(
        "/", "-"
    )


def _show(path: Path | None) -> str:
    if path is None:
        return _bundle_table(load_bundle())
    if (path / "bundle.json").is_file():
        return _bundle_table(load_bundle(path))
    if (path / "trace.json").is_file():
        raw = read_json(path / "trace.json")
        if isinstance(raw, dict) and raw.get("format") == JOB_FORMAT:
            jobs = load_jobs(path)
            return (
                f"{len(jobs.arrival_s)} jobs over {jobs.arrival_s[-1] / DAY_S:.1f} days from {jobs.source}; "
                f"median duration {np.median(jobs.duration_s):.0f} s, executors {jobs.executors.min()}"
                f"-{jobs.executors.max()}"
            )
    return _table(load_traces(path))


_DRAWN = (
    "Where `available` is -, episodes draw the availability of spot capacity from spells fitted to AWS\n"
    "zones of 2023: interruptions and savings there are synthetic, not those of these zones."
)
_HEADER = f"{'provider':9}{'zone or region':16}{'instance type':18}{'market':11}{'rows':>6}  {'days':>7}  "


def _line(key: Sequence[str], rows: int, days: float, up: str, prices: str) -> str:
    provider, region, zone, instance_type, market = key
    name = f"{provider:9}{zone or region:16}{instance_type:18}{market:11}"
    return f"{name}{rows:6}  {days:7.1f}  {up:>9}  {prices}"


def _table(traces: Sequence[MarketTrace]) -> str:
    lines = [f"{_HEADER}{'available':>9}  USD/h"]
    for trace in traces:
        available, prices = trace.available, trace.price_usd_hour
        up = "-"
        if available is not None:
            # The last row holds for an unknown time, so it does not count.
            lengths = np.diff(trace.times_s)
            up = f"{np.average(available[:-1], weights=lengths) if len(lengths) else available[0]:.3f}"
        span = "-" if prices is None else f"{prices.min():.4f}-{prices.max():.4f}"
        days = float(trace.times_s[-1] - trace.times_s[0]) / DAY_S
        lines.append(_line(trace.meta.offer, len(trace.times_s), days, up, span))
    if any(trace.available is None and trace.meta.market == "spot" for trace in traces):
        lines.append(_DRAWN)
    return "\n".join(lines)


def _bundle_table(bundle: TraceBundle) -> str:
    days = bundle.record_end_s / DAY_S
    lines = [
        f"clock starts {bundle.clock_start_utc}, availability ends after {days:.2f} days; "
        f"GCP prices are moved back {bundle.gcp_shift_days} days",
        *(f"{name}: {facts['source']}, {facts['licence']}" for name, facts in bundle.meta["sources"].items()),
        f"{_HEADER}{'available':>9}  USD/h within the record",
    ]
    recorded = set(bundle.spot_zones())
    for key in bundle.offers():
        zone, market = key[2], key[4]
        up = "1" if market == "on_demand" else "synthetic"
        price = bundle.price(*key).window(0, bundle.record_end_s)
        if zone in recorded and market == "spot":
            states = bundle.offer_trace(*key).availability.window(0, bundle.record_end_s)
            lengths = np.diff(np.append(states.times_s, bundle.record_end_s))
            up = f"{np.average(states.values, weights=lengths):.3f}"
        span = f"{price.values.min():.4f}-{price.values.max():.4f}"
        lines.append(_line(key, len(price.times_s), days, up, span))
    return "\n".join(lines)
