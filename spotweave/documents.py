"""YAML and JSON files of users, read as they stand.

Keys are text, whatever YAML 1.1 takes them for (`on`, `no`, `1`). A key that is given twice is refused,
because one of the two would be lost. Nothing in them is an interpolation.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import yaml


class DocumentError(ValueError):
    """A file holds no document; one line that names the file."""


class _Loader(yaml.SafeLoader):
    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        own: set[str] = set()
        for key, _ in node.value:
            line = key.start_mark.line + 1
            if not isinstance(key, yaml.ScalarNode):
                raise DocumentError(f"a key is no text (line {line})")
            if key.value in own:
                raise DocumentError(f"the key {key.value!r} is given twice (line {line}): keep one")
            own.add(key.value)
        # What `<<` brings may be given again: the mapping's own keys come later. The node stays as it is.
        whole = yaml.MappingNode(node.tag, list(node.value), node.start_mark, node.end_mark)
        self.flatten_mapping(whole)
        return {key.value: self.construct_object(value, deep=True) for key, value in whole.value}


def _mapping(loader: _Loader, node: yaml.MappingNode) -> dict[Any, Any]:
    return loader.construct_mapping(node)


_Loader.add_constructor("tag:yaml.org,2002:map", _mapping)
# YAML 1.1 takes 1e-3 for a text.
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"^[-+]?(\d+\.?\d*|\.\d+)[eE][-+]?\d+$"), list("-+0123456789.")
)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise DocumentError(f"the key {twice!r} is given twice: keep one")
    return found


def read_document(path: Path) -> Any:
    """What a YAML or JSON file holds.

    Raises:
        DocumentError: if it is neither, or gives a key twice; one line.
        OSError: if it cannot be read.
    """
    try:
        text = path.read_text(encoding="utf-8")
        if text.lstrip()[:1] in ("{", "["):
            try:
                # Which is YAML too, for a parser that takes a thousand times as long.
                return json.loads(text, object_pairs_hook=_once)
            except json.JSONDecodeError:
                pass
        return yaml.load(text, _Loader)
    except DocumentError as error:
        raise DocumentError(f"{path}: {error}") from error
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        raise DocumentError(f"{path} is not YAML: {' '.join(str(error).split())}") from error
