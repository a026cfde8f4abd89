"""Who may import whom: the layers of docs/architecture.md, checked on the syntax tree of every file."""

from __future__ import annotations

import ast
import importlib.util
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
OURS = frozenset({"spotweave", "benchmarks", "tests"})
# Linked into spotweave/: what they hold is imported as `envs` and so on, never as `envs`.
FOLDERS = frozenset({"envs", "agents", "training", "deploy"})


@dataclass(frozen=True)
class Layer:
    """One folder, or one file, and what it may import.

    `ours` and `foreign` name module prefixes; `foreign` None means any library.
    """

    folder: str
    ours: tuple[str, ...]
    foreign: tuple[str, ...] | None = None


# A file belongs to the layer with the longest matching folder.
LAYERS = (
    Layer("spotweave", ours=("spotweave",), foreign=("pydantic", "rich", "yaml")),
    # What programs ask of the package itself is loaded from where it is, when it is asked for.
    Layer("spotweave/__init__.py", ours=("spotweave", "envs", "deploy.cli.client")),
    Layer("spotweave/api.py", ours=("spotweave", "training", "agents", "envs")),
    # The command line is the one place where training and the live side meet.
    Layer("spotweave/cli.py", ours=("spotweave", "training", "deploy", "agents", "envs")),
    Layer("envs/simulation", ours=("envs.simulation",), foreign=("numpy", "numba")),
    Layer("envs/traces", ours=("spotweave", "envs.simulation", "envs.traces")),
    Layer("envs", ours=("spotweave", "envs")),
    Layer("agents", ours=("spotweave", "agents", "envs.simulation")),
    Layer("training", ours=("spotweave", "training", "agents", "envs")),
    Layer("benchmarks", ours=("spotweave", "benchmarks", "deploy", "training", "agents", "envs")),
    Layer("deploy", ours=("spotweave", "deploy", "agents", "envs.simulation", "envs.traces")),
)


def statements(node: ast.AST) -> Iterator[ast.stmt]:
    """Every statement below a node. Expressions, most of a tree, hold none."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.expr):
            if isinstance(child, ast.stmt):
                yield child
            yield from statements(child)


def imported_modules(source: str) -> Iterator[tuple[int, str]]:
    """(line, dotted module) of every import in `source`; a relative one begins with its dots."""
    for node in statements(ast.parse(source)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            # `from spotweave.envs import multicloud` imports a module, or a name of one: both are judged.
            for alias in node.names:
                yield node.lineno, f"{'.' * node.level}{node.module or ''}.{alias.name}"


def starts_with(module: str, prefixes: tuple[str, ...]) -> bool:
    """Whether the dotted `module` is one of `prefixes` or lies below one."""
    return any(module == prefix or module.startswith(prefix + ".") for prefix in prefixes)


def layer_of(path: str) -> Layer | None:
    """The layer of a file named by its path from the repository's root."""
    holding = [layer for layer in LAYERS if f"{path}/".startswith(layer.folder + "/")]
    return max(holding, key=lambda layer: len(layer.folder), default=None)


def violations(path: str, source: str) -> list[str]:
    """One line per import of the file that its layer forbids, or that is not below `spotweave`."""
    layer = layer_of(path)
    found = []
    for line, name in imported_modules(source):
        top = name.split(".")[0]
        if top in FOLDERS:
            found.append(f"{path}:{line} imports {name}: expected spotweave.{name}")
            continue
        if layer is None:
            continue
        if top in OURS:
            inner = name.removeprefix("spotweave.")
            allowed = starts_with(inner if inner.split(".")[0] in FOLDERS else name, layer.ours)
        else:
            allowed = top != "" and (
                layer.foreign is None or top in sys.stdlib_module_names or starts_with(name, layer.foreign)
            )
        if not allowed:
            found.append(f"{path}:{line} imports {name}: {layer.folder}/ may not")
    return found


def test_every_file_keeps_to_its_layer() -> None:
    folders = [ROOT / "tests", *(ROOT / layer.folder for layer in LAYERS)]
    files = [path for folder in folders for path in ([folder] if folder.is_file() else folder.rglob("*.py"))]
    assert len(files) > 10
    found = [
        line
        for path in sorted(set(files))
        for line in violations(path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8"))
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("envs/simulation/clock.py", "def f():\n    import torch.nn as nn"),
        (
            "envs/simulation/clock.py",
            "try:\n    pass\nexcept OSError:\n    from spotweave.envs.traces import bundle",
        ),
        ("envs/simulation/clock.py", "from ..traces.bundle import load"),
        ("envs/multicloud.py", "from spotweave.agents.policy import Policy"),
        ("agents/rules/baselines.py", "from spotweave.envs import multicluster"),
        ("training/train.py", "import spotweave.deploy"),
        ("training/train.py", "from spotweave import deploy"),
        ("deploy/server.py", "import spotweave.training.train"),
        ("deploy/server.py", "from deploy.store.store import Store"),
        ("tests/anything.py", "import envs"),
    ],
)
def test_a_forbidden_import_is_found(path: str, source: str) -> None:
    assert len(violations(path, source)) == 1


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("envs/simulation/clock.py", "import heapq\nimport numpy as np\nfrom numba import njit"),
        (
            "agents/networks/lstm.py",
            "import torch\nfrom spotweave.envs.simulation.snapshot import Observation",
        ),
        ("tests/anything.py", "import spotweave.deploy, spotweave.training, spotweave.envs"),
    ],
)
def test_an_allowed_import_is_not_reported(path: str, source: str) -> None:
    assert violations(path, source) == []


def test_no_module_beside_a_script_hides_one_of_a_library() -> None:
    """`python training/train.py` puts training/ in front of everything that Python looks for modules in."""
    names = [path.stem for path in (ROOT / "training").iterdir() if path.is_dir() or path.suffix == ".py"]
    assert "train" in names
    assert not [name for name in names if importlib.util.find_spec(name)]
