"""An experiment as Markdown, made from its summary alone, so that a page can be checked against it."""

from __future__ import annotations

from collections.abc import Sequence

from spotweave.training.evaluation.tables import arrow, number
from spotweave.training.studies.bounds import overview_tables
from spotweave.training.studies.cells import (
    Summary,
    difference_cell,
    metric_name,
    share_cell,
    spread_cell,
    table,
)

SCORES = {
    "none": {},
    "fsn": {"fsn": "F/S/N"},
    "abcd": {f"score_{letter}": f"Score-{letter.upper()}" for letter in "abcd"},
}
"""By kind: what is published under which name, and its heading."""


def fragment(summary: Summary) -> str:
    """What the page shows of an experiment: its tables and pictures, and the command that made them."""
    parts = []
    pictures = []
    for file, caption in summary["figures"].items():
        pictures += [f"![{file}]({summary['study']}/{file}.png)", caption]
    if summary["shows"].get("overview"):
        return "\n\n".join([*pictures, *overview_tables(summary), origin(summary)])
    if summary["shows"]["table"]:
        for scenario in summary["scenarios"].values():
            parts += [f"**{scenario['title']}**", means_table(summary, scenario)]
            if paired := paired_table(summary, scenario):
                parts.append(paired)
            if closed := closed_table(summary, scenario):
                parts.append(closed)
    return "\n\n".join([*parts, *pictures, origin(summary)])


def origin(summary: Summary) -> str:
    """The command behind an experiment and what it was measured on."""
    suite = summary["suite"]
    hashes = ", ".join(scenario["suite_hash"][:12] for scenario in summary["scenarios"].values())
    text = (
        f"`{summary['command']}`; suite `{suite['name']}`, {suite['episodes']} episodes, "
        f"suite hash {hashes}, commit {summary['commit'][:12]}"
    )
    if "stored" in summary:
        for commit in dict.fromkeys(summary["stored"].values()):
            whose = ", ".join(f"`{name}`" for name, its in summary["stored"].items() if its == commit)
            text += f"; {whose} as measured at commit {commit[:12]}"
    return text


def means_table(summary: Summary, scenario: Summary) -> str:
    """Means of every policy; below each the published numbers."""
    metrics, reference = summary["shows"]["metrics"], summary["reference"]
    header = ["policy", "seeds"]
    header += [f"{metric_name(name)} {arrow(scenario['higher_is_better'][name])}" for name in metrics]
    header += _score_headings(summary, scenario)
    rows = []
    for name, policy in scenario["policies"].items():
        title = scenario["titles"][name]
        cells = [
            f"**{title}**" if policy["trained"] else title,
            str(policy["seeds"]) if policy["trained"] else "",
        ]
        cells += [spread_cell(policy["metrics"][metric]) for metric in metrics]
        rows.append(cells + _score_cells(summary, policy["against"].get(reference)))
        if name in scenario["published"]:
            rows.append(_published_row(summary, scenario, name))
    for name in scenario["published"]:
        if name not in scenario["policies"]:
            rows.append(_published_row(summary, scenario, name))
    if scenario["bounds"] is not None:
        for row in _bound_rows(scenario, metrics):
            rows.append(row + [""] * (len(header) - len(row)))
    return table(header, rows)


def _bound_rows(scenario: Summary, metrics: Sequence[str]) -> list[list[str]]:
    bounds = scenario["bounds"]
    plan, unhindered = _bound_titles(scenario)
    planned = [spread_cell(bounds["planned"][metric]) for metric in metrics]
    rows = [[f"{plan}, {bounds['episodes']} episodes", "", *planned]]
    if bounds["unhindered"] is not None:
        best = [
            spread_cell(bounds["unhindered"]) if metric == bounds["objective"] else "" for metric in metrics
        ]
        rows.append([unhindered, "", *best])
    return rows


def _bound_titles(scenario: Summary) -> tuple[str, str]:
    """The plan can be carried out, so the best possible is no worse; nothing passes a world without waits."""
    higher = scenario["higher_is_better"][scenario["bounds"]["objective"]]
    plan, unhindered = ("below", "above") if higher else ("above", "below")
    return f"Clairvoyant plan (bound from {plan})", f"No waiting, no misses (bound from {unhindered})"


def closed_table(summary: Summary, scenario: Summary) -> str:
    """The objective of every policy on the planned episodes, and how much of the gap to the plan it closes.

    An empty text if no plan was asked for.
    """
    bounds = scenario["bounds"]
    if bounds is None:
        return ""
    objective = bounds["objective"]
    bases = [(summary["reference"], "closed")]
    if any("closed_from_strongest" in policy for policy in bounds["policies"].values()):
        bases.append((summary["strongest"], "closed_from_strongest"))
    header = [
        f"the first {bounds['episodes']} episodes",
        f"{metric_name(objective)} {arrow(scenario['higher_is_better'][objective])}",
        *(
            f"share of the gap from {scenario['titles'][base]} to the clairvoyant plan that is closed, 95 %"
            for base, _ in bases
        ),
    ]
    rows = []
    for name, policy in bounds["policies"].items():
        title = scenario["titles"][name]
        shown = f"**{title}**" if scenario["policies"][name]["trained"] else title
        shares = [share_cell(policy[key], name == base) for base, key in bases]
        rows.append([shown, spread_cell(policy), *shares])
    plan, unhindered = _bound_titles(scenario)
    rows.append([plan, number(bounds["planned"][objective]["mean"]), *["100 %"] * len(bases)])
    if bounds["unhindered"] is not None:
        rows.append([unhindered, number(bounds["unhindered"]["first_mean"]), *[""] * len(bases)])
    return table(header, rows)


def _score_headings(summary: Summary, scenario: Summary) -> list[str]:
    reference = scenario["titles"][summary["reference"]]
    return [f"{name} against {reference}" for name in SCORES[summary["shows"]["scores"]].values()]


def _score_cells(summary: Summary, against: Summary | None) -> list[str]:
    kind = summary["shows"]["scores"]
    if kind == "none" or against is None:
        return [""] * len(SCORES[kind])
    if kind == "fsn":
        return [_dominance(against["fsn"])]
    if against["scores"] is None:
        return ["not defined"] * 4
    return [spread_cell(against["scores"][letter]) for letter in "abcd"]


def _dominance(fsn: Summary) -> str:
    text = "/".join(f"{count:g}" for count in (round(mean, 1) for mean in fsn["mean"]))
    fully = [counts[0] for counts in fsn["per_seed"]]
    return text + (f" (F {min(fully)} to {max(fully)})" if len(fully) > 1 else "")


def _published_row(summary: Summary, scenario: Summary, name: str) -> list[str]:
    printed = scenario["published"][name]
    cells = [f"*{scenario['titles'][name]}, published*", ""]
    cells += [_printed(printed.get(metric)) for metric in summary["shows"]["metrics"]]
    return cells + [_printed(printed.get(name)) for name in SCORES[summary["shows"]["scores"]]]


def _printed(value: float | Sequence[float] | None) -> str:
    if value is None:
        return ""
    return f"*{value:g}*" if isinstance(value, int | float) else f"*{'/'.join(f'{v:g}' for v in value)}*"


def paired_table(summary: Summary, scenario: Summary) -> str:
    """Each policy against the reference and the strongest rule, or an empty text if nothing is asked for."""
    shows, titles = summary["shows"], scenario["titles"]
    others = [name for name in (summary["reference"], summary["strongest"]) if name is not None]
    header = ["policy"]
    for other in others:
        header += [f"{metric_name(metric)}: policy − {titles[other]}, 95 %" for metric in shows["paired"]]
    header += [
        f"{metric_name(metric)}: {titles[summary['reference']]} / policy" for metric in shows["ratios"]
    ]
    if len(header) == 1:
        return ""
    rows = []
    for name, policy in scenario["policies"].items():
        if name == summary["reference"]:
            continue
        cells = [f"**{titles[name]}**" if policy["trained"] else titles[name]]
        for other in others:
            against = policy["against"].get(other)
            cells += [
                "" if against is None else difference_cell(against, metric) for metric in shows["paired"]
            ]
        ratios = policy["against"][summary["reference"]]["ratio"]
        cells += [
            _ratio(ratios[metric], _published_ratio(summary, scenario, name, metric))
            for metric in shows["ratios"]
        ]
        rows.append(cells)
    return table(header, rows)


def _published_ratio(summary: Summary, scenario: Summary, policy: str, metric: str) -> float | None:
    """The published mean of the reference over that of the policy, where both are printed."""
    ours = scenario["published"].get(policy, {}).get(metric)
    theirs = scenario["published"].get(summary["reference"], {}).get(metric)
    return None if not ours or not theirs else float(theirs) / float(ours)


def _ratio(measured: float | None, published: float | None) -> str:
    text = "" if measured is None else f"{measured:.2f}"
    return text + ("" if published is None else f" (*published {published:.2f}*)")
