"""How the functions of worlds and rules are compiled.

Python calls an `entry`; an `inner` function is called by compiled functions only. Both work on arrays that
their caller keeps alive and allocate none: they skip reference counting, which at 25 arrays a call took most
of the time (a decision is six times faster without it). They are inlined, because every array is passed by
value, seven words or more of it, which makes a decision twice as fast again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias, TypeVar, cast

from numba import njit
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import CompilerBase, DefaultPassBuilder
from numba.core.compiler_machinery import register_pass
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
