"""How the functions of worlds and rules are compiled.

Python calls an `entry`; an `inner` function is called by compiled functions only. Both work on arrays that
their caller keeps alive and allocate none: they skip reference counting, which at 25 arrays a call took most
of the time (a decision is six times faster without it). They are inlined, because every array is passed by
value, seven words or more of it, which makes a decision twice as fast again.
"""

from __future__ import annotations

import hashlib
import inspect
import os
import shutil
import sys
import time
import uuid
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, TextIO, TypeAlias, TypeVar, cast

import numba
from numba import njit
from numba.core import caching, event
from numba.core.caching import IndexDataCacheFile, UserProvidedCacheLocator
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import CompilerBase, DefaultPassBuilder
from numba.core.compiler_machinery import register_pass
from numba.core.dispatcher import Dispatcher
from numba.core.typed_passes import NativeLowering

F = TypeVar("F", bound=Callable[..., Any])
Kernel: TypeAlias = Any  # a function compiled by numba, which ships no types

OPTIONS: Mapping[str, Any] = {"error_model": "numpy", "_nrt": False, "forceinline": True}


class _Linked(JITCodeLibrary):
    """Code that is optimised and made machine code only where it is inlined."""

    def finalize(self) -> None:
        libraries: list[Any] = self._linking_libraries
        for library in dict.fromkeys(libraries):
            self._reload_init.update(library._reload_init)
            self._final_module.link_in(library._get_module_for_linking(), preserve=True)
        self._finalized = True


@register_pass(mutates_CFG=True, analysis_only=False)  # type: ignore[no-untyped-call]
class _Linking(NativeLowering):
    """Lowers a function to LLVM's language and stops there."""

    _name = "linking"

    def run_pass(self, state: Any) -> bool:
        state["library"] = _Linked(  # type: ignore[no-untyped-call]
            state.targetctx.codegen(), state.func_id.func_qualname
        )
        state.flags.no_compile = state.flags.no_cpython_wrapper = state.flags.no_cfunc_wrapper = True
        super().run_pass(state)  # type: ignore[no-untyped-call]
        # In the place of the machine code: callers find the function by it, and Python gets a KeyError.
        key = f"{{{state.func_id.func_name} is called by compiled functions only}}".format
        state.targetctx.insert_user_function(key, state.cr.fndesc, [state["library"]])
        state.cr = state.cr._replace(cfunc=key)
        return True


class _Inner(CompilerBase):
    def define_pipelines(self) -> list[Any]:
        manager: Any = DefaultPassBuilder.define_nopython_pipeline(self.state)  # type: ignore[no-untyped-call]
        manager.passes = [(_Linking if one is NativeLowering else one, why) for one, why in manager.passes]
        manager.finalize()
        return [manager]


def linked(**options: Any) -> Callable[[F], F]:
    """Compile a function that compiled functions call, with options of numba's `njit`; it may allocate.

    It becomes a part of each of them. Compiling every one for itself as well, with the code that unpacks
    its arguments from Python, took half of the time that a machine needs before its first episode.
    """
    options = {"error_model": "numpy", "pipeline_class": _Inner, **options}
    return cast("Callable[[F], F]", njit(**options))


def inner(function: F) -> F:
    """As `linked`, and inlined; it allocates nothing (see above)."""
    return linked(**OPTIONS)(function)


def entry(function: F) -> F:
    """Compile a function that Python calls; other threads go on meanwhile."""
    return cast(F, njit(**OPTIONS, cache=True, nogil=True)(function))


# Cache compiled code between runs, and report compilations in one line.
#
# Numba's cache notices when the file of a function changes, but not when a function that it calls, in
# another file, does: after an edit or an upgrade it would run the old callee. A folder named after a hash
# of every source that may be compiled rules that out. In it a function is found by its path within the
# sources, not on the disk, so that clones, workers and tests share what one of them has compiled.


ROOT = Path(__file__).resolve().parents[2]
COMPILED_FOLDERS = (
    "envs/simulation",
    "envs/simulation/workflows",
    "envs/simulation/slices",
    "envs/simulation/market",
    "envs/simulation/spot",
    "agents/bags",
    "agents/federated",
    "agents/rules",
    "agents/mtdqn",
    "agents/spot",
    "agents/workflows",
)

KEPT_S = 7 * 86_400
"""Folders of other versions are removed when unused for this long."""
_LOCATORS = (
    "spotweave.envs.simulation.compiled.SharedCacheLocator",
    "UserProvidedCacheLocator",
    "InTreeCacheLocator",
    "UserWideCacheLocator",
    "IPythonCacheLocator",
    "ZipCacheLocator",
)
"""Ours first, then numba's own, in its order."""


class SharedCacheLocator(UserProvidedCacheLocator):
    """Numba's place for a function of these sources; other functions are left to its other locators."""

    @classmethod
    def get_suitable_cache_subpath(cls, py_file: str) -> str:
        """The folder below the cache."""
        return str(Path(py_file).resolve().parent.relative_to(ROOT)).replace(os.sep, "_")

    @classmethod
    def from_function(cls, py_func: Any, py_file: str) -> Any:
        """A locator, or None if the function is not of these sources."""
        if not Path(py_file).resolve().is_relative_to(ROOT):
            return None
        return super().from_function(py_func, py_file)  # type: ignore[no-untyped-call]


class UnmixedCacheFile(IndexDataCacheFile):
    """Numba's index of a function's compiled code, which two processes may write at the same time.

    Numba numbers the files that hold the code. Two processes that compile the function for different
    arguments may take the same number, and then one runs the other's machine code: 1.5 + 1.5 became 2.
    """

    def _data_name(self, number: int) -> str:
        return f"{Path(self._index_name).stem}.{uuid.uuid4().hex[:16]}.nbc"


def sources_hash() -> str:
    """A hash of numba's version and all sources with compiled code. The CPU is in numba's own keys."""
    digest = hashlib.sha256(numba.__version__.encode())
    for folder in COMPILED_FOLDERS:
        for path in sorted((ROOT / folder).glob("*.py")):
            digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def use_versioned_cache() -> None:
    """Point numba's cache at this version's folder; NUMBA_CACHE_DIR, if set, is left in charge."""
    caching.IndexDataCacheFile = UnmixedCacheFile  # type: ignore[misc]
    if os.environ.get("NUMBA_CACHE_DIR"):
        return
    base = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "spotweave" / "numba"
    folder = base / sources_hash()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        os.utime(folder)
    except OSError:
        return  # no place of our own: numba finds one, or compiles again each time
    numba.config.CACHE_DIR = str(folder)  # type: ignore[attr-defined]
    numba.config.CACHE_LOCATOR_CLASSES = ",".join(_LOCATORS)  # type: ignore[attr-defined]
    for other in base.iterdir():
        if other != folder and time.time() - other.stat().st_mtime > KEPT_S:
            shutil.rmtree(other, ignore_errors=True)


def needed_by(function: Dispatcher) -> set[Dispatcher]:
    """A compiled function and all that it calls, however deep."""
    found, new = {function}, [function]
    while new:
        named = inspect.getclosurevars(new.pop().py_func)
        used = (*named.globals.values(), *named.nonlocals.values())
        called = {one for one in used if isinstance(one, Dispatcher)}
        new += called - found
        found |= called
    return found


class CompileCounter(event.Listener):
    """Shows on a terminal, or else now and then in a line, how many of the functions are compiled.

    Attributes:
        compiled: functions so far.
        known: these, and what functions that Python called need besides.
    """

    def __init__(self, out: TextIO | None) -> None:
        self.compiled: set[Dispatcher] = set()
        self.known: set[Dispatcher] = set()
        self._out = out
        self._depth = 0
        self._spent_s = self._began_s = self._said_s = 0.0

    def on_start(self, event: Any) -> None:
        """A function begins to be compiled, maybe for another one that calls it."""
        if self._depth == 0:
            self._began_s = time.monotonic()
            self.known |= needed_by(event.data["dispatcher"])
        self._depth += 1

    def on_end(self, event: Any) -> None:
        """A function is compiled."""
        self._depth -= 1
        self.compiled.add(event.data["dispatcher"])
        now_s = time.monotonic()
        spent_s = self._spent_s + now_s - self._began_s
        count = f"{len(self.compiled)} of {len(self.known | self.compiled)}"
        line = f"compiling for this machine, once: {count} functions, {spent_s:.0f} s"
        # Standard error as it is now: whoever reads it may have changed.
        out = sys.stderr if self._out is None else self._out
        if out.isatty():
            out.write(f"\r\x1b[K{line if self._depth else ''}")
            out.flush()
        elif spent_s - self._said_s >= _SAY_EVERY_S:
            self._said_s = spent_s
            print(line, file=out, flush=True)
        if self._depth == 0:
            self._spent_s = spent_s


_SAY_EVERY_S = 10.0


@cache
def announce_compiling(out: TextIO | None = None) -> CompileCounter:
    """Report compilations, on standard error by default; loads from the cache are silent."""
    counter = CompileCounter(out)
    event.register("numba:compile", counter)  # type: ignore[no-untyped-call]
    return counter
