"""Compiled code is shared by all copies of the same sources, and what is compiled is said."""

from __future__ import annotations

import ast
import io
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numba import njit
from numba.core import caching

from spotweave.agents.rules.choice import draw
from spotweave.agents.rules.policy import from_python
from spotweave.envs.simulation.compiled import COMPILED_FOLDERS, ROOT, announce_compiling

COMPILED = re.compile(r"njit|inner|linked|entry")

COMPILE = """
from numba.core import event
compiled = []
class Listener(event.Listener):
    def on_start(self, event):
        compiled.append(event)
    def on_end(self, event):
        pass
event.register("numba:compile", Listener())
from spotweave.envs.simulation.spot.ticks import settle
settle(1, 2, 3, 4)
print(len(compiled))
"""


def test_folders_with_compiled_code_count_for_the_cache_and_no_others() -> None:
    uses = re.compile(rf"^from (?:numba|[\w.]+\.compiled) import .*\b(?:{COMPILED.pattern})\b", re.MULTILINE)
    found = {
        path.parent.relative_to(ROOT).as_posix()
        for top in ("envs", "agents", "training", "deploy", "spotweave")
        for path in (ROOT / top).rglob("*.py")
        if uses.search(path.read_text(encoding="utf-8"))
    }
    assert found == set(COMPILED_FOLDERS)


def test_python_cannot_call_what_is_compiled_as_a_part_of_others() -> None:
    for _ in range(2):
        with pytest.raises(KeyError, match="draw is called by compiled functions only"):
            draw(np.ones(2))
        assert from_python(draw)(np.ones(2)) == pytest.approx(48271 / 2147483647)


def called_by_python(tree: ast.AST) -> Iterator[ast.expr]:
    """What is called in a tree, but in compiled functions."""
    nodes = [tree]
    while nodes:
        node = nodes.pop()
        if not (isinstance(node, ast.FunctionDef) and COMPILED.match(decorators(node))):
            if isinstance(node, ast.Call):
                yield node.func
            nodes.extend(ast.iter_child_nodes(node))


def decorators(function: ast.FunctionDef) -> str:
    return " ".join(map(ast.unparse, function.decorator_list))


def test_python_calls_nothing_that_is_compiled_as_a_part_of_others() -> None:
    tops = ("envs", "agents", "training", "deploy", "spotweave", "benchmarks", "tests")
    texts = {path: path.read_text("utf-8") for top in tops for path in (ROOT / top).rglob("*.py")}
    uses = re.compile(rf"from spotweave[.]({'|'.join(COMPILED_FOLDERS)})\b".replace("/", "[.]"))
    trees = {
        ".".join(("spotweave", *path.relative_to(ROOT).with_suffix("").parts)): ast.parse(text)
        for path, text in texts.items()
        # The templates in policy.py are compiled when they are filled in.
        if uses.search(text) and path != ROOT / "agents/rules/policy.py"
    }
    parts = {
        f"{module}.{node.name}"
        for module, tree in trees.items()
        for node in tree.body
        if isinstance(node, ast.FunctionDef) and re.match(r"inner$|linked\(", decorators(node))
    }
    assert len(parts) > 200
    for module, tree in trees.items():
        names = {
            node.name: f"{module}.{node.name}" for node in tree.body if isinstance(node, ast.FunctionDef)
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom):
                names |= {one.asname or one.name: f"{node.module}.{one.name}" for one in node.names}
        for called in called_by_python(tree):
            first = called.value if isinstance(called, ast.Attribute) else called
            whole = names.get(first.id, "") if isinstance(first, ast.Name) else ""
            whole += f".{called.attr}" if isinstance(called, ast.Attribute) else ""
            assert whole not in parts or whole == "spotweave.agents.rules.choice.draw", (
                f"{module} calls {whole}"
            )


@pytest.mark.real
def test_another_copy_of_the_sources_compiles_nothing_again(tmp_path: Path) -> None:
    counts = []
    for name in ("one", "two"):
        shutil.copytree(ROOT / "envs" / "simulation", tmp_path / name / "envs" / "simulation")
        (tmp_path / name / "spotweave").mkdir()
        (tmp_path / name / "spotweave" / "envs").symlink_to("../envs")
        env = {"PYTHONPATH": str(tmp_path / name), "XDG_CACHE_HOME": str(tmp_path), "HOME": str(tmp_path)}
        command = [sys.executable, "-c", COMPILE]
        done = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True, check=True)
        counts.append(int(done.stdout))
    assert counts[0] > 0
    assert counts[1] == 0


def test_processes_that_fill_the_cache_at_once_do_not_mix_up_their_code(tmp_path: Path) -> None:
    file: Any = caching.IndexDataCacheFile
    one, two, reader = (file(str(tmp_path), "f", "stamp") for _ in range(3))
    write = one._save_data

    def overtaken(name: str, data: Any) -> None:
        two._load_index = dict  # it read the index before `one` wrote there
        two.save("float64", "code for floats")
        write(name, data)

    one._save_data = overtaken
    one.save("int64", "code for integers")
    assert reader.load("float64") == "code for floats"
    assert reader.load("int64") in ("code for integers", None)


def test_what_is_compiled_is_counted_on_a_terminal() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    out = Terminal()
    counter = announce_compiling(out)

    inner: Any = njit(lambda x: x + 1)
    outer: Any = njit(lambda x: inner(x) + 1)
    assert outer(1) == 3
    assert len(counter.compiled) == 2
    assert "compiling for this machine, once: 1 of 2 functions" in out.getvalue()
    # The line is gone when nothing is compiled any more.
    assert out.getvalue().endswith("\r\x1b[K")
