"""Fits the distributions of fitted.json. Spells come from the train days only (see docs/traces.md)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy import optimize, stats

from spotweave.envs.simulation.availability import (
    LognormalComponent,
    LognormalMixture,
    OnOff,
    SpellParameters,
    generate_availability,
)
from spotweave.envs.simulation.series import Bools, Floats, Ints, StepSeries
from spotweave.envs.traces.bundle import DAY_S, SPLIT_DAYS, TraceBundle, load_bundle
from spotweave.envs.traces.storage import TraceError, write_file

GANG_SIZES = (1, 2, 4, 8)
DURATION_RANGE_S = (600.0, 86_400.0)

_QUANTILES = np.array([0.1, 0.25, 0.5, 0.75, 0.9, 0.97])
_SIGMA_BOUNDS = (0.2, 2.5)
_SEED = 20230215


def fit(source: Path, out: Path) -> None:
    """Fit everything and write fitted.json.

    Args:
        source: folder that holds philly_jobs, alibaba_lora_requests and aws_gpu_prices_2020. The first two
            are not shipped, only the figures fitted to them.
        out: file to write.

    Raises:
        TraceError: for a missing input, in one line.
    """
    for name in ("philly_jobs", "alibaba_lora_requests", "aws_gpu_prices_2020"):
        if not (source / name).is_dir():
            raise TraceError(f"{source} has no folder {name}: give the folder that holds the raw collections")
    bundle = load_bundle()
    result = {
        "jobs": fit_jobs(source / "philly_jobs" / "philly.csv"),
        "batches": fit_batches(source / "alibaba_lora_requests" / "lora_request_trace.csv"),
        "launches": fit_launches(source / "aws_gpu_prices_2020" / "availability_events.csv", bundle),
        "availability": fit_availability(bundle),
    }
    text = json.dumps(result, indent=1) + "\n"
    write_file(out, lambda path: path.write_text(text))


def fit_jobs(path: Path) -> dict[str, Any]:
    """Gang sizes and durations of the Philly jobs of 10 min to 24 h.

    The file has no status column, so "completed" cannot be asked for: killed and failed jobs are in it. Most
    of them end early, and the lower bound drops those.
    """
    table = pd.read_csv(path)
    low, high = DURATION_RANGE_S
    inside = table["duration"].between(low, high)
    kept = table[inside & table["num_gpus"].isin(GANG_SIZES)]
    shares = kept["num_gpus"].value_counts(normalize=True)
    log_low, log_high = np.log(DURATION_RANGE_S)
    mixture = _fit_mixture(np.log(kept["duration"].to_numpy(np.float64)), bounds=(log_low, log_high))
    return {
        "source": "Philly (CC-BY-4.0)",
        "rows": len(table),
        "dropped_shorter_than_10_min": int((table["duration"] < low).sum()),
        "dropped_longer_than_24_h": int((table["duration"] > high).sum()),
        "dropped_other_gang_sizes": int((inside & ~table["num_gpus"].isin(GANG_SIZES)).sum()),
        "kept": len(kept),
        "gang_sizes": list(GANG_SIZES),
        "gang_probabilities": [float(shares[size]) for size in GANG_SIZES],
        "duration_min_s": low,
        "duration_max_s": high,
        "duration_mixture": _components(mixture),
    }


def fit_batches(path: Path) -> dict[str, Any]:
    """Execution seconds and hours of day of the requests that succeeded."""
    table = pd.read_csv(path, usecols=["gmt_create", "predict_status", "exec_time_seconds"])
    kept = table[(table["predict_status"] == "SUCCEED") & (table["exec_time_seconds"] > 0)]
    logs = np.log(kept["exec_time_seconds"].to_numpy(np.float64))
    hours = pd.to_datetime(kept["gmt_create"]).dt.hour.to_numpy()
    counts = np.bincount(hours, minlength=24)
    return {
        "source": "alibaba/clusterdata GenTD26 lora_request_trace (timestamps shifted by its authors)",
        "rows": len(table),
        "kept": len(kept),
        "log_mean": float(logs.mean()),
        "log_sigma": float(logs.std()),
        "hourly_weights": [float(share) for share in counts / counts.sum()],
    }


def fit_launches(path: Path, bundle: TraceBundle) -> dict[str, Any]:
    """Launch failure rates: where a probe said yes, and of the 2020 logs, which retry during outages."""
    events = pd.read_csv(path)["event"]
    failed, created = int((events == "create_failed").sum()), int((events == "created").sum())
    states, _ = _train_states(bundle, bundle.spot_zones())
    lost = int((states[:, :-1] & ~states[:, 1:]).sum())
    return {
        "source": "training_on_a_dime logs of 2020 (MIT) and aws_v100_2023 (Apache-2.0), train days",
        "create_failed": failed,
        "created": created,
        "launch_failure_2020": failed / (failed + created),
        "launch_failure": lost / int(states[:, :-1].sum()),
    }


def fit_availability(bundle: TraceBundle) -> dict[str, Any]:
    """One set of spell parameters for all nine zones and one for each region."""
    zones = bundle.spot_zones()
    _, correlation = _train_states(bundle, zones)
    regions = np.array([zone[:-1] for zone in zones])
    same = regions[:, None] == regions[None, :]
    apart = ~np.eye(len(zones), dtype=bool)
    groups = {"pooled": np.ones(len(zones), bool), **{r: regions == r for r in dict.fromkeys(regions)}}
    result = {}
    for name, mask in groups.items():
        rows = correlation[mask], same[mask], apart[mask]
        within = float(rows[0][rows[1] & rows[2]].mean())
        across = float(rows[0][~rows[1]].mean())
        members = [zone for zone, kept in zip(zones, mask, strict=True) if kept]
        result[name] = _fit_group(bundle, members, within, across)
    return result


def _fit_group(bundle: TraceBundle, zones: Sequence[str], within: float, across: float) -> dict[str, Any]:
    states, _ = _train_states(bundle, zones)
    mean = float(states.mean())
    shares = shares_for(mean, within, across)
    ups, downs = _spells(states, on=True), _spells(states, on=False)
    start_up, start_down = (
        _fit_mixture(np.log(spells * bundle.tick_s), censored=ends) for spells, ends in (ups, downs)
    )
    targets = [_profile(spells * bundle.tick_s) for spells, _ in (ups, downs)]
    regions = [f"region-{k // 3}" for k in range(9)]
    grid_s = np.arange(0, 45 * DAY_S, bundle.tick_s)

    def distance(theta: Floats) -> float:
        params = _assemble(start_up, start_down, shares, theta)
        # The same seeds at every step make the distance a function of theta alone; several worlds, since one
        # world sees few of the common shocks.
        worlds = (
            generate_availability(
                np.random.default_rng(_SEED + k), regions, 45 * DAY_S, params, bundle.tick_s
            )
            for k in range(10)
        )
        simulated = np.stack([_sample(series, grid_s) for world in worlds for series in world])
        gap = 0.0
        for target, on in zip(targets, (True, False), strict=True):
            spells, _ = _spells(simulated, on)
            gap += float(((_profile(spells * bundle.tick_s) - target) ** 2).sum())
        # Spells hardly tell how long shocks are, so a weak prior keeps them at hours to days.
        return gap + 0.02 * float(((theta - first) ** 2).sum())

    shocks = np.log([6 * 3600.0, 12 * 3600.0, 1.2])
    first = np.concatenate([np.zeros(5), shocks])
    steps = np.vstack([first, first + np.diag([0.5, 0.5, 0.5, 1.0, 1.0, 0.8, 0.8, 0.3])])
    found = optimize.minimize(
        distance,
        first,
        method="Nelder-Mead",
        options={"initial_simplex": steps, "maxfev": 500, "xatol": 0.01, "fatol": 1e-3},
    )
    params = _assemble(start_up, start_down, shares, found.x)
    return {
        "source": "aws_v100_2023 (Apache-2.0), days 0 to 30",
        "zones": list(zones),
        "recorded": {
            "up_share": mean,
            "correlation_within": within,
            "correlation_across": across,
            "direct_up_mixture": _components(start_up),
            "direct_down_mixture": _components(start_down),
        },
        "squared_log_distance": float(found.fun),
        **{name: _on_off(process) for name, process in vars(params).items()},
    }


def shares_for(mean: float, within: float, across: float) -> tuple[float, float, float]:
    """Up-shares (own, regional, common) that give a mean availability and two correlations.

    Inverts the two formulae in the docstring of `envs.simulation.availability`.
    """
    odds = (1 - mean) / mean
    common = 1 / (1 + across * odds)
    shared = 1 / (1 + within * odds)
    return mean / shared, shared / common, common


def _assemble(
    up: LognormalMixture, down: LognormalMixture, shares: tuple[float, float, float], theta: Floats
) -> SpellParameters:
    """Spell laws with the wanted shares; theta bends the directly fitted mixtures and sets the shocks.

    theta: log shifts of the short and of the long up-spells and of the long down-spells, shifts of the log
    odds of a short up- and a short down-spell, log mean seconds of a regional and of a common shock, log
    of the shocks' log_sigma.
    """
    own_up = _shifted(up, theta[0], theta[1], theta[3])
    bent = _shifted(down, 0.0, theta[2], theta[4])
    missing = np.log(own_up.mean_s * (1 - shares[0]) / shares[0] / bent.mean_s)
    sigma = float(np.clip(np.exp(theta[7]), *_SIGMA_BOUNDS))
    shocks = (
        OnOff(*(_one(mean_s, sigma) for mean_s in (np.exp(log_s) * share / (1 - share), np.exp(log_s))))
        for log_s, share in zip(theta[5:7], shares[1:], strict=True)
    )
    return SpellParameters(OnOff(own_up, _shifted(bent, missing, missing)), *shocks)


def _one(mean_s: float, sigma: float) -> LognormalMixture:
    return LognormalMixture((LognormalComponent(1.0, float(np.log(mean_s) - sigma**2 / 2), sigma),))


def _shifted(mixture: LognormalMixture, short: float, long: float, odds: float = 0.0) -> LognormalMixture:
    first, second = mixture.components
    weight = float(1 / (1 + second.weight / first.weight * np.exp(-odds)))
    return LognormalMixture(
        (
            LognormalComponent(weight, float(first.log_mean + short), first.log_sigma),
            LognormalComponent(1 - weight, float(second.log_mean + long), second.log_sigma),
        )
    )


def _sample(series: StepSeries, grid_s: Ints) -> Bools:
    rows = np.searchsorted(series.times_s, grid_s, side="right") - 1
    return np.asarray(series.values[np.maximum(rows, 0)] > 0.5)


def _train_states(bundle: TraceBundle, zones: Sequence[str]) -> tuple[Bools, Floats]:
    """(Z, T) states at each tick of the train days, and their (Z, Z) correlations."""
    start, end = SPLIT_DAYS["train"]
    grid_s = np.arange(start * DAY_S, end * DAY_S, bundle.tick_s)
    states = np.stack(
        [
            _sample(bundle.offer_trace("aws", zone[:-1], zone, "p3.2xlarge", "spot").availability, grid_s)
            for zone in zones
        ]
    )
    return states, np.atleast_2d(np.corrcoef(states))


def _spells(states: Bools, on: bool) -> tuple[Floats, Bools]:
    """Lengths in ticks of the spells in one state, and which of them touch an end of the record."""
    lengths, censored = [], []
    for row in states:
        edges = np.concatenate([[0], np.flatnonzero(row[1:] != row[:-1]) + 1, [len(row)]])
        wanted = row[edges[:-1]] == on
        touches = np.zeros(len(edges) - 1, dtype=bool)
        touches[[0, -1]] = True
        lengths.append(np.diff(edges)[wanted])
        censored.append(touches[wanted])
    return np.concatenate(lengths).astype(np.float64), np.concatenate(censored)


def _profile(spells_s: Floats) -> Floats:
    """Logarithms of quantiles and of the mean; what the generator has to reproduce."""
    return np.asarray(np.log(np.append(np.quantile(spells_s, _QUANTILES), spells_s.mean())))


def _fit_mixture(
    logs: Floats, censored: Bools | None = None, bounds: tuple[float, float] | None = None
) -> LognormalMixture:
    """Two lognormal components by maximum likelihood, the shorter first.

    Args:
        logs: (n,) logarithms of lengths in seconds.
        censored: (n,) lengths that are known only to be at least this long.
        bounds: logarithms of the range outside of which lengths were dropped (truncation).
    """
    cut = np.zeros(len(logs), dtype=bool) if censored is None else censored

    def unpack(theta: Floats) -> tuple[Floats, ...]:
        weight = 0.02 + 0.96 / (1 + np.exp(-theta[0]))
        means = np.array([theta[1], theta[1] + np.exp(theta[2])])
        return np.array([weight, 1 - weight]), means, np.clip(np.exp(theta[3:5]), *_SIGMA_BOUNDS)

    def loss(theta: Floats) -> float:
        weights, means, sigmas = unpack(theta)
        # Inputs repeat (ticks, whole seconds), so the likelihood is taken once per distinct value.
        density = (weights * stats.norm.pdf(points[:, None], means, sigmas)).sum(axis=1)
        beyond = (weights * stats.norm.sf(points[:, None], means, sigmas)).sum(axis=1)
        inside = 1.0
        if bounds is not None:
            low, high = (float(weights @ stats.norm.cdf(edge, means, sigmas)) for edge in bounds)
            inside = high - low
        likelihood = counts * np.log(density / inside + 1e-300) + cut_counts * np.log(beyond + 1e-300)
        return -float(likelihood.sum()) / len(logs)

    points, where = np.unique(logs, return_inverse=True)
    counts = np.bincount(where, weights=~cut, minlength=len(points))
    cut_counts = np.bincount(where, weights=cut, minlength=len(points))
    spread = float(logs.std())
    start = np.array(
        [0.0, logs.mean() - spread / 2, np.log(spread), np.log(spread * 0.6), np.log(spread * 0.8)]
    )
    options = {"maxiter": 4000, "xatol": 1e-4, "fatol": 1e-7}
    found = optimize.minimize(loss, start, method="Nelder-Mead", options=options)
    weights, means, sigmas = unpack(found.x)
    return LognormalMixture(
        tuple(
            LognormalComponent(float(w), float(m), float(s))
            for w, m, s in zip(weights, means, sigmas, strict=True)
        )
    )


def _components(mixture: LognormalMixture) -> list[dict[str, float]]:
    return [{k: round(v, 12) for k, v in vars(part).items()} for part in mixture.components]


def _on_off(process: OnOff) -> dict[str, list[dict[str, float]]]:
    assert isinstance(process.up, LognormalMixture)
    assert isinstance(process.down, LognormalMixture)
    return {"up": _components(process.up), "down": _components(process.down)}
