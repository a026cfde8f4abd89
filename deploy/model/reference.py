"""The reference of the job file, from the models that read it.

`python -m deploy.model.reference > docs/job-file.md`
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from deploy.model.jobs import JobSpec

Schema = Mapping[str, Any]
INTRODUCTION = """\
# The job file

Every key of the YAML file that `spotweave submit` sends, made from the models that read it by
`python -m deploy.model.reference > docs/job-file.md`. What the kinds of jobs do with them:
[Spark](spark-jobs.md), [bags](bags.md), [workflows](workflows.md), [asynchronous trainings](asynchronous.md).
An unknown key is refused. A number is written as a number, not as text.

```yaml
name: wordcount
work: {kind: spark-batch, script: wordcount.py, args: ["100"], deadline_s: 900}
resources: {instances: 2, vcpus: 1, memory_gib: 1.0}
places: {markets: [spot, on_demand]}
```
"""


def reference() -> str:
    """The page, as Markdown."""
    whole = JobSpec.model_json_schema()
    models: Mapping[str, Schema] = whole["$defs"]
    parts = [INTRODUCTION + "\n" + _table(whole, models)]
    for name in _used(whole, models):
        text = " ".join(models[name].get("description", "").split())
        parts.append(f"## {_title(name, models)}\n\n{text}\n\n{_table(models[name], models)}")
    return "\n\n".join(parts) + "\n"


def _used(schema: Schema, models: Mapping[str, Schema]) -> Iterator[str]:
    """Models by their first mention, each before those that it mentions itself."""
    left, seen = [schema], set[str]()
    while left:
        for name in re.findall(r"#/\$defs/(\w+)", repr(left.pop(0).get("properties", {}))):
            if name not in seen:
                seen.add(name)
                left.append(models[name])
                yield name


def _title(name: str, models: Mapping[str, Schema]) -> str:
    kind = models[name].get("properties", {}).get("kind", {}).get("const")
    return f"kind: {kind}" if kind else re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name).capitalize()


def _table(schema: Schema, models: Mapping[str, Schema]) -> str:
    rows = ["| key | value | default | meaning |", "|---|---|---|---|"]
    for key, about in schema.get("properties", {}).items():
        if key == "kind":
            continue
        meaning = " ".join(about.get("description", "").split()).replace("|", "\\|")
        meaning = re.sub(r"\bNone: ", "left out: ", meaning)
        default = _default(about["default"]) if "default" in about else "required"
        if key not in schema.get("required", ()) and "default" not in about:
            default = "empty"
        rows.append(f"| `{key}` | {_value(about, models)} | {default} | {meaning} |")
    return "\n".join(rows)


def _default(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, Mapping):
        return f"kind `{value['kind']}`" if "kind" in value else "its own defaults" if value else "empty"
    if value in ([], ()):
        return "empty"
    return f"{value:g}" if isinstance(value, float) else str(value).lower()


def _value(about: Schema, models: Mapping[str, Schema]) -> str:
    """What may be given."""
    if "$ref" in about:
        title = _title(about["$ref"].rpartition("/")[2], models)
        anchor = title.lower().replace(":", "").replace(" ", "-")
        return f"[{title}](#{anchor})"
    for several in ("anyOf", "oneOf"):
        if several in about:
            told = [_value(one, models) for one in about[several] if one.get("type") != "null"]
            return ", or ".join(told)
    if "enum" in about or "const" in about:
        return ", ".join(f"`{one}`" for one in about.get("enum", [about.get("const")]))
    kind = about.get("type", "")
    if kind == "array":
        return f"list{_bounds(about, 'minItems', 'maxItems')} of {_value(about.get('items', {}), models)}"
    if kind == "object":
        return f"mapping{_bounds(about, 'minProperties', 'maxProperties')} of texts to texts"
    if kind == "string":
        pattern = ": lower-case letters, digits, hyphens, at most 40" if "pattern" in about else ""
        return f"text{_bounds(about, 'minLength', 'maxLength')}{pattern}"
    name = {"integer": "whole number", "boolean": "true or false"}.get(kind, kind)
    above, below = about.get("exclusiveMinimum"), about.get("exclusiveMaximum")
    exclusive = f" above {_number(above)}" if above is not None else ""
    exclusive += f" below {_number(below)}" if below is not None else ""
    return f"{name}{exclusive}{_bounds(about, 'minimum', 'maximum')}"


def _bounds(about: Schema, least: str, most: str) -> str:
    low, high = about.get(least), about.get(most)
    if low is not None and high is not None:
        return f" ({_number(low)} to {_number(high)})"
    if high is not None:
        return f" (at most {_number(high)})"
    return f" (at least {_number(low)})" if low else ""


def _number(value: float) -> str:
    return f"{value:,.10g}"


if __name__ == "__main__":
    print(reference(), end="")
