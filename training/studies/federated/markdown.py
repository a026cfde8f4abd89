"""The blocks of the pages, made from stored documents alone, so that a page can be checked against them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from spotweave.training.federated.multi_fedls_tables import render_multi_fedls
from spotweave.training.studies.cells import table

Document = Mapping[str, Any]
MISSING = "No learned policy was released when this was measured, so its rows are missing."
_PRINTED = {"time_min": "*{:.0f}*", "cost_usd": "*{:.2f}*", "savings_percent": "*{:.2f}*"}


def _finish(parts: Sequence[str], document: Document) -> str:
    return "\n\n".join(parts if document["checkpoint"] else [*parts, MISSING])


def value(measured: Document | None, places: int = 2) -> str:
    """`12.34 [12.01, 12.66]`; the mean alone where it has no width."""
    if measured is None:
        return ""
    low, high = (_number(end, places) for end in measured["interval"])
    mean = _number(measured["mean"], places)
    return mean if low == high == mean else f"{mean} [{low}, {high}]"


def difference(measured: Document | None, places: int = 2) -> str:
    """The same with a sign, and a star where the interval excludes 0."""
    if measured is None:
        return ""
    low, high = measured["interval"]
    sign = "+" if round(measured["mean"], places) > 0 else ""
    return sign + value(measured, places) + (" *" if low > 0 or high < 0 else "")


def _number(number: float, places: int) -> str:
    text = f"{number:.{places}f}"
    return text.removeprefix("-") if float(text) == 0 else text


def _title(policy: Document) -> str:
    return f"**{policy['title']}**" if policy["ours"] else str(policy["title"])


def _compared(
    policies: Mapping[str, Document],
    means: Mapping[str, tuple[str, int]],
    counts: Mapping[str, str],
    pair: str,
    differences: Mapping[str, tuple[str, int]],
) -> list[str]:
    """A table of every policy, then one of ours against others, whose rows are called `pair` of two titles.

    By heading, means and differences are a metric and its places, counts a format of the policy's fields.
    """
    rows = [
        [
            _title(policy),
            *(value(policy["means"][metric], places) for metric, places in means.values()),
            *(form.format_map(policy) for form in counts.values()),
        ]
        for policy in policies.values()
    ]
    against = [
        [
            pair.format(_title(policy), policies[other]["title"]),
            *(difference(changes[metric], places) for metric, places in differences.values()),
        ]
        for policy in policies.values()
        for other, changes in policy["against"].items()
    ]
    return [table(["policy", *means, *counts], rows), table(["", *differences], against)]


def table_one_body(document: Document) -> str:
    """Table I: for each data set the means next to the print, then the differences to FedCostAware."""
    parts = []
    for case in document["cases"].values():
        policies = case["policies"]
        references = ("fed_cost_aware", "fed_cost_aware_ready")
        rows, against = [], []
        for name, policy in policies.items():
            means, printed = policy["means"], policy["published"] or {}
            time = "" if name == "least" else value(means["time_min"], 1)
            cells = [_title(policy), time, value(means["cost_usd"]), value(means["saving_percent"])]
            cells += [form.format(printed[key]) if key in printed else "" for key, form in _PRINTED.items()]
            rows.append([*cells, value(policy["left_points"])])
            if policy["against"]:
                cells = [_title(policy)]
                for pair in (policy["against"].get(other, {}) for other in references):
                    cells.append(difference(pair.get("saving_percent")))
                    cells.append("" if name == "least" else difference(pair.get("time_min")))
                against.append(cells)
        header = ["policy", "time (min)", "cost (USD)", "savings (%)"]
        header += ["published: time", "cost", "savings", "points left"]
        columns = ["policy"]
        for title in (policies[other]["title"] for other in references):
            columns += [f"savings (points) − {title}, 95 %", f"time (%) against {title}, 95 %"]
        parts += [f"**{case['title']}**", table(header, rows), table(columns, against)]
    return _finish(parts, document)


def sensitivity_body(document: Document) -> str:
    """Table I where times vary more: what FedCostAware saves, and the differences of our policies to it."""
    parts = []
    for varied, what in (("epoch_cv", "epochs"), ("spin_up_cv", "spin-ups")):
        cases = [case for case in document["cases"] if case["varied"] == varied]
        header = [f"variation of {what}", "", "FedCostAware saves (%)"]
        for policy in cases[0]["ours"].values():
            header += [f"**{policy['title']}**: points more, 95 %", "time (%), 95 %"]
        rows = []
        for case in cases:
            cells = [case["data_set"], f"{case['level']:g}", value(case["saving"])]
            for policy in case["ours"].values():
                cells += [difference(policy["saving_percent"]), difference(policy["time_min"])]
            rows.append(cells)
        parts.append(table(header, rows))
    return _finish(parts, document)


STATES = "Client states of Fed-ISIC2019, first test episode"
COSTS = "Accumulated cost of Fed-ISIC2019's clients, first test episode, one scale"


def figures_body(what: str, document: Document) -> str:
    """Figures 4 and 5 of Sinha 2025: a picture per policy, and a caption that says what they show."""
    parts, captions = [], []
    for policy in document["policies"].values():
        parts.append(f"![{policy['title']}]({document['page']}/{policy['file']})")
        captions.append(
            "{title} ({time_min:.1f} min, {cost_usd:.2f} USD, {instances} instances)".format_map(policy)
        )
    ours = "the learned policy" if document["ours"] == "learned" else f"the rule `{document['ours']}`"
    return "\n\n".join([*parts, f"{what}, from above: {', '.join(captions)}. Spotweave is {ours}."])


def zones_body(document: Document) -> str:
    """Recorded zones: means, what must be none, and the differences to the rules."""
    parts = _compared(
        document["policies"],
        {
            "cost (%)": ("cost_percent", 1),
            "delay (%)": ("delay_percent", 1),
            "cost (USD)": ("cost_usd", 2),
            "interruptions": ("interruptions", 1),
        },
        {
            "budgets exceeded": "{totals[budgets_exceeded]:.0f}",
            "rounds lost": "{totals[rounds_lost]:.0f}",
            "clients that left": "{totals[left]:.0f}",
            "epochs lost by leaving": "{totals[work_lost]:.0f}",
        },
        "{} − {}",
        {"cost (points), 95 %": ("cost_percent", 2), "delay (points), 95 %": ("delay_percent", 2)},
    )
    return _finish(parts, document)


def mapping_body(document: Document) -> str:
    """Tables 7.8 to 7.10 of Brum 2023: optimal placements and their rounds."""
    parts = []
    for number, title in (("7.8", "Table 7.8"), ("7.10", "Tables 7.9 and 7.10")):
        rows = []
        for row in (item for item in document["rows"] if item["table"] == number):
            cells = [row["application"], row["setup"], row["server"], row["clients"]]
            for ours, printed in (("round_time", "published_time"), ("round_usd", "published_usd")):
                cells += [row[ours], f"*{row[printed]}*"]
            for key in ("saved_time_percent", "saved_usd_percent"):
                cells += [row[key], f"*{row[f'published_{key}']}*"] if key in row else ["", ""]
            rows.append(cells)
            if "found" in row and row["found"]["clients"] != row["clients"]:
                found = row["found"]
                cells = [row["application"], "optimal, ours", found["server"], found["clients"]]
                cells += [found["round_time"], "", found["round_usd"], "", "", "", "", ""]
                rows.append(cells)
        header = ["application", "setup", "server", "clients", "round", "*printed*", "USD", "*printed*"]
        header += ["time saved (%)", "*printed*", "USD saved (%)", "*printed*"]
        parts += [f"**{title}**", table(header, rows)]
    proved = sum(row["found"]["proved"] for row in document["rows"] if "found" in row)
    worst = max(abs(row["found"]["objective_difference"]) for row in document["rows"] if "found" in row)
    equal = "are equal" if worst == 0 else f"differ by {worst:.0e} at most"
    parts.append(
        f"{proved} optimal placements were found again and proved; their objectives and those of the printed "
        f"ones {equal}."
    )
    return "\n\n".join(parts)


def scaling_body(document: Document) -> str:
    """Table of the benchmarks' measurements."""
    rows = []
    for row in document["rows"]:
        bar = "" if row["bar"] is None else f"{row['bar']:g} {row['unit']}"
        rows.append([row["name"].strip(), f"{row['value']:.3g} {row['unit']}", bar, row["note"]])
    machine = document["machine"]
    where = f"`{document['benchmark']}`, on one core of a machine with {machine['cores']} ({machine['cpu']})."
    return "\n\n".join([table(["what", "measured", "bar", ""], rows), where])


def revocations_body(document: Document) -> str:
    """Tables 7.14 to 7.18: mean of our runs [middle 95 % of means of three]; the printed mean."""
    counts = []
    for reading in ("counted", "stated"):
        inside = [
            figure["inside"]
            for row in document["rows"]
            for name, figure in row["figures"].items()
            # The reading *counted* takes its revocations from the print.
            if row["reading"] == reading and not (reading == "counted" and name == "revocations")
            if figure["inside"] is not None
        ]
        counts.append(
            f"{sum(inside)} of {len(inside)} printed means are inside under the reading *{reading}*"
        )
    text = render_multi_fedls(document).strip().replace("### Table", "#### Table")
    left_out = "The revocations of *counted* are the printed ones and are left out."
    return "\n\n".join([text, f"{', '.join(counts)}. {left_out}"])


def spot_cases_body(document: Document) -> str:
    """Each case: means of all policies, then ours against every scheduler."""
    parts = []
    for case in document["cases"].values():
        means = {
            "time (min)": ("time_min", 1),
            "cost (USD)": ("cost_usd", 2),
            "revocations": ("interruptions", 2),
        }
        differences = {"cost (%), 95 %": ("cost_usd", 1), "time (%), 95 %": ("time_min", 1)}
        counts = {"rounds lost": "{rounds_lost:.0f}"}
        parts.append(f"**{case['title']}**")
        parts += _compared(case["policies"], means, counts, "{} against: {}", differences)
    return _finish(parts, document)
