"""Carries out an experiment (measure, write, draw, print), or the trainings of a study."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from spotweave.mistakes import EXIT_FAILED, EXIT_INTERRUPTED
from spotweave.training.canvas import save
from spotweave.training.config import UsageError, to_yaml, typed
from spotweave.training.engine import HERE, KEYS, EngineSettings
from spotweave.training.evaluation.episodes import find_suite
from spotweave.training.files import prepare_directory, write_json, write_text
from spotweave.training.progress import play_progress
from spotweave.training.studies.evaluations import EvaluationCache
from spotweave.training.studies.experiment import read_experiment
from spotweave.training.studies.figures import draw_figure
from spotweave.training.studies.markdown import fragment
from spotweave.training.studies.measuring import Player
from spotweave.training.studies.processes import RepeatProgress, run_all, started_by
from spotweave.training.studies.scenario import experiment_summary, pooled, write_experiment_episodes
from spotweave.training.studies.search import TuneSettings, runs_of_best, searched, validated
from spotweave.training.studies.stored import read_stored
from spotweave.training.studies.trained import RepeatSettings, Run, StudySettings, planned_runs

RESULTS = Path("results")
DOCS = Path("docs") / "results"
FROM_EXPERIMENT = ("policies", "checkpoint", "weights", "config")


def run_experiment(values: Mapping[str, Any], command: str, engine: EngineSettings = HERE) -> int:
    """The command compare with +experiment=: everything of one table or figure into OUT.

    Writes summary.json, episodes.csv (every metric; with published episodes only those that are shown),
    shown.csv (those that are shown), table.md, config.yaml and the figures; played episodes are kept in
    results/STUDY/cache.

    `values` are the composed configuration of `compare`, `command` is what was typed. Raises UsageError,
    CheckpointError, WorldError, ValueError: one line each.
    """
    if "env" in values:
        raise UsageError("give either +env= or +experiment=: an experiment names its own worlds")
    for key in FROM_EXPERIMENT:
        if values.get(key) is not None:
            raise UsageError(f"{key}= cannot be given with +experiment=, which says what is measured")
    settings = read_experiment(values["experiment"])
    suite = find_suite(values["suite"], values["episodes"])
    if suite.episodes < 2:
        raise UsageError(f"an interval needs at least 2 episodes, got episodes={suite.episodes}")
    study = RESULTS / settings.study
    out = prepare_directory(Path(values["out"]) if values["out"] else study / settings.name)
    # Everything that may be missing is looked for before anything is played.
    stored = read_stored(DOCS / settings.study, settings) if settings.stored != "none" else None
    unplayed = settings.stored == "all"
    worlds = settings.by_world()
    agents = {name: {} if unplayed else worlds.agents_of(name) for name in worlds.scenarios}
    with engine.open() as opened, play_progress(lines=True) as progress:
        cache = EvaluationCache(study / "cache")
        lanes, device = int(values["lanes"]), str(values["device"])
        player = Player(worlds, suite, cache, lanes, device, progress, opened)
        results, played = {}, {}
        for name in settings.scenarios:
            parts = settings.parts_of(name)
            measured = [
                player.unplayed(part) if unplayed else player.measure(part, agents[part]) for part in parts
            ]
            result = pooled(measured, suite.episodes)
            played[name] = result.policies.keys() - settings.taken
            results[name] = result if stored is None else stored.added_to(result, name, settings)
        for file, figure in settings.figures.items():
            save(draw_figure(player, figure, results, agents), out / f"{file}.png")
    summary = experiment_summary(settings, suite, results, command)
    if stored is not None:
        summary["stored"] = {
            policy: stored.commit(policy)
            for name, result in results.items()
            for policy in result.policies
            if policy not in played[name]
        }
    kept = {key: value for key, value in values.items() if key not in KEYS}
    write_text(out / "config.yaml", to_yaml(kept))
    write_experiment_episodes(settings, results, out / "episodes.csv", every_metric=stored is None)
    write_experiment_episodes(settings, results, out / "shown.csv", every_metric=False)
    text = fragment(summary)
    write_text(out / "table.md", text + "\n")
    write_json(out / "summary.json", summary)
    print(text)
    print(f"\nwritten: {out}")
    return 0


def repeat(values: Mapping[str, Any]) -> int:
    """The command repeat: train what a study needs; returns the exit code. Raises UsageError."""
    settings = typed(RepeatSettings, values, "")
    return run_planned(planned_runs(settings), settings)


def tune(values: Mapping[str, Any]) -> int:
    """The command tune: search settings, train the best; returns the exit code. Raises UsageError."""
    settings = typed(TuneSettings, values, "")
    found = searched(settings)
    tried = [candidate.run for candidates in found.values() for candidate in candidates]
    code = run_planned(tried, settings)
    if code:
        return code
    runs = []
    for name, candidates in found.items():
        scores = [validated(candidate.run) for candidate in candidates]
        best = candidates[scores.index(max(scores))]
        print(f"{name}: {' '.join(best.words) or 'the defaults'} ({max(scores):.6g} on validation)")
        runs += runs_of_best(settings, name, best)
    return run_planned(runs, settings)


def run_planned(runs: Sequence[Run], settings: StudySettings) -> int:
    """Run what is not finished, and say what became of it; returns the exit code.

    Raises:
        UsageError: before anything starts, for a run that has other settings than are asked for now, or where
            the cluster does not answer.
    """
    for run in runs:
        run.refuse_other_settings()
    finished = [run for run in runs if run.finished]
    wanted = [run for run in runs if not run.finished]
    with (
        started_by(settings.engine, settings.ray.address) as start,
        RepeatProgress(runs, finished) as progress,
    ):
        outcomes = run_all(wanted, settings.workers, settings.threads, progress, start)
    for run, problem in outcomes.failed.items():
        print(f"failed: {run.name}: {problem}")
    print(
        f"{len(finished) + len(outcomes.finished)} of {len(runs)} trainings are finished "
        f"({len(finished)} were before), {len(outcomes.failed)} failed"
    )
    if outcomes.interrupted:
        print("interrupted; states are saved. Go on with the same command")
        return EXIT_INTERRUPTED
    return EXIT_FAILED if outcomes.failed else 0
