"""The reference of the job file, from the models that read it.

`python -m spotweave.deploy.model.reference > docs/job-file.md`
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from spotweave.deploy.model.jobs import JobSpec

Schema = Mapping[str, Any]
INTRODUCTION = """\
# The job file

Look up any key of the file that `spotweave submit` sends. Required keys are bold; `_s` means seconds. A
*name* has lower-case letters, digits and hyphens, at most 40. Unknown keys and values out of range are
refused. By kind: [Spark](spark-jobs.md), [Flower](flower-jobs.md), [bags](bags.md),
[workflows](workflows.md).

```yaml
name: wordcount
work: {kind: spark-batch, script: wordcount.py, args: ["100"], deadline_s: 900}
resources: {instances: 2, vcpus: 1, memory_gib: 1.0}
places: {markets: [spot, on_demand]}
```
"""
PLAIN = ("text", "list of text", "number")
"""Values that a key's name and meaning tell."""
TOLD = (*PLAIN, "whole number", "true or false")
"""Values that a default tells."""
END = "Made by `python -m spotweave.deploy.model.reference > docs/job-file.md`."
MOST_TOLD = 100
"""Larger limits only stop mistakes; the refusal names them."""


def reference() -> str:
    """The page, as Markdown."""
    whole = JobSpec.model_json_schema()
    models: Mapping[str, Schema] = whole["$defs"]
    told: dict[tuple[str, str], str] = {}
    parts = [INTRODUCTION + "\n" + _table("", whole, models, told)]
    for name in _used(whole, models):
        text = " ".join(models[name].get("description", "").split())
        title = _title(name, models)
        parts.append(f"## {title}\n\n{text}\n\n{_table(title, models[name], models, told)}")
    return "\n\n".join([*parts, END]) + "\n"


def _used(schema: Schema, models: Mapping[str, Schema]) -> Iterator[str]:
    """Models by their first mention, each before those that it mentions itself."""
    left, seen = [schema], set[str]()
    while left:
        for name in re.findall(r"#/\$defs/(\w+)", repr(left.pop(0).get("properties", {}))):
            if name not in seen:
                seen.add(name)
                left.append(models[name])
                yield name


def _anchor(title: str) -> str:
    return title.lower().replace(":", "").replace(" ", "-")


def _title(name: str, models: Mapping[str, Schema]) -> str:
    kind = models[name].get("properties", {}).get("kind", {}).get("const")
    return f"kind: {kind}" if kind else re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name).capitalize()


def _table(title: str, schema: Schema, models: Mapping[str, Schema], told: dict[tuple[str, str], str]) -> str:
    """Its keys; those that an earlier model has too are named only."""
    rows, same = list[str](), dict[str, list[str]]()
    for key, about in schema.get("properties", {}).items():
        if key == "kind":
            continue
        first = told.setdefault((key, repr(about)), title)
        if first != title:
            same.setdefault(first, []).append(f"`{key}`")
            continue
        meaning = " ".join(about.get("description", "").split()).replace("|", "\\|")
        meaning = re.sub(r"\bNone: ", "left out: ", meaning)
        value, default = _value(about, models), _default(about.get("default"))
        parts = ["" if value in (TOLD if default else PLAIN) else value, default and f"default {default}"]
        value = "; ".join(part for part in parts if part)
        value = value and f" ({value})"
        name = f"**`{key}`**" if key in schema.get("required", ()) else f"`{key}`"
        rows.append(f"| {name} | {meaning.removesuffix('.')}{value}. |")
    table = "\n".join(["| key | meaning |", "|---|---|", *rows]) if rows else ""
    links = (f"{', '.join(keys)} as in [{first}](#{_anchor(first)})" for first, keys in same.items())
    return "\n\n".join(part for part in (table, "; ".join(links)) if part)


def _default(value: object) -> str:
    if value is None or value in ([], ()):
        return ""
    if isinstance(value, Mapping):
        return f"`{value['kind']}`" if "kind" in value else ""
    return f"{value:g}" if isinstance(value, float) else str(value).lower()


def _value(about: Schema, models: Mapping[str, Schema]) -> str:
    """What may be given."""
    if "$ref" in about:
        title = _title(about["$ref"].rpartition("/")[2], models)
        return f"[{title.removeprefix('kind: ')}](#{_anchor(title)})"
    for several in ("anyOf", "oneOf"):
        if several in about:
            told = [_value(one, models) for one in about[several] if one.get("type") != "null"]
            return " or ".join(told) if len(told) == 2 else ", ".join(told)
    if "enum" in about or "const" in about:
        return ", ".join(f"`{one}`" for one in about.get("enum", [about.get("const")]))
    kind = about.get("type", "")
    if kind == "array":
        return f"list of {_value(about.get('items', {}), models)}"
    if kind == "object":
        return "mapping of texts"
    if kind == "string":
        return "name" if "pattern" in about else "text"
    name = {"integer": "whole number", "boolean": "true or false"}.get(kind, kind)
    return f"{name}{_bounds(about, 'minimum', 'maximum')}"


def _bounds(about: Schema, least: str, most: str) -> str:
    low, high = about.get(least), about.get(most)
    if high is not None and high <= MOST_TOLD:
        return f", {low or 0:g} to {high:g}"
    return f", {low:g} or more" if low is not None and low > 1 else ""


if __name__ == "__main__":
    print(reference(), end="")
