"""GPUs: what a task asks for, what an offer promises, and what a node's driver shows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from pydantic import BeforeValidator, Field, FiniteFloat, model_validator

from spotweave.deploy.model.fields import Text
from spotweave.documents import StrictModel

MOST_GPUS = 64
"""Of one instance; more than any type has."""
_USABLE = 0.92
"""Drivers show less than the vendor names: 15 GiB of a T4's 16, 22.4 of an L4's 24."""
_VENDOR = frozenset({"NVIDIA", "TESLA", "GEFORCE"})


def _several(value: object) -> object:
    """One model may be written without a list."""
    if isinstance(value, str):
        return (value,)
    return tuple(value) if isinstance(value, list) else value


Models = Annotated[
    tuple[Text, ...],
    Field(min_length=1, max_length=16),
    BeforeValidator(_several, json_schema_input_type=Text | tuple[Text, ...]),
]


class GpuAsk(StrictModel):
    """What each instance of a task must have of GPUs."""

    gpus: Annotated[int, Field(ge=0, le=MOST_GPUS)] | None = None
    """How many; None: 1 if `gpu` or `gpu_memory_gib` is given, else 0."""
    gpu: Models | None = None
    """A model, or several of which any will do; None: any."""
    gpu_memory_gib: Annotated[FiniteFloat, Field(gt=0, le=1e5)] | None = None
    """Minimum memory of each GPU, as its vendor names it."""

    @model_validator(mode="after")
    def _some(self) -> GpuAsk:
        if self.gpus == 0 and (self.gpu is not None or self.gpu_memory_gib is not None):
            raise ValueError("gpus is 0, and gpu or gpu_memory_gib asks for some: leave one of them out")
        for model in self.gpu or ():
            if not _words(model):
                raise ValueError(f"gpu names {model!r}: expected a model such as L4 or A100-80GB")
        return self

    @property
    def gpu_count(self) -> int:
        """How many each instance must have."""
        if self.gpus is not None:
            return self.gpus
        return int(self.gpu is not None or self.gpu_memory_gib is not None)

    @property
    def asked_gpus(self) -> dict[str, object]:
        """What is given of these keys."""
        return {name: value for name in GpuAsk.model_fields if (value := getattr(self, name)) is not None}

    def lacking(self, gpus: int, gpu: str | None, memory_gib: float) -> str | None:
        """What instances with such GPUs lack; None: they do.

        Args:
            gpus: of one instance.
            gpu: their model; None: none.
            memory_gib: of each.
        """
        if not self.gpu_count:
            return None
        models = " or ".join(self.gpu or ()) or ("a GPU" if self.gpu_count == 1 else f"{self.gpu_count} GPUs")
        if not gpus or gpu is None:
            return f"has no GPU, the job needs {models}"
        if not any(is_model(one, gpu) for one in self.gpu or (gpu,)):
            return f"has {gpu}, the job needs {models}"
        if gpus < self.gpu_count:
            return f"has {gpus} {gpu}, the job needs {self.gpu_count} GPUs"
        if not has_memory(memory_gib, self.gpu_memory_gib or 0.0):
            return f"has {memory_gib:g} GiB of GPU memory, the job needs {self.gpu_memory_gib:g}"
        return None


def _words(name: str) -> frozenset[str]:
    return frozenset(name.upper().replace("-", " ").split()) - _VENDOR


def model_of(name: str) -> str:
    """A driver's name of a GPU as jobs write it: "NVIDIA A100-SXM4-80GB" is an A100-SXM4-80GB."""
    return "-".join(word for word in name.replace("-", " ").split() if word.upper() not in _VENDOR) or name


def is_model(wanted: str, name: str) -> bool:
    """Whether a GPU of this name is one of a model: an A100-SXM4-80GB is an A100, and no A10."""
    return _words(wanted) <= _words(name)


def has_memory(found_gib: float, wanted_gib: float) -> bool:
    """Whether a GPU that shows so much is one of this size."""
    return found_gib >= _USABLE * wanted_gib


def broken_promise(
    gpus: int, gpu: str | None, memory_gib: float, found: Sequence[tuple[str, float]], problem: str
) -> str:
    """What a node lacks of what its offer promised, in one line; "": nothing.

    Args:
        gpus: promised.
        gpu: their model; None: none are promised.
        memory_gib: of each.
        found: name and memory (GiB) of each GPU that the node's driver shows.
        problem: why there are not more, as the node says.
    """
    good = [1 for name, gib in found if is_model(gpu or "", name) and has_memory(gib, memory_gib)]
    if len(good) >= gpus:
        return ""
    shown = told([f"{model_of(name)} of {gib:.0f} GiB" for name, gib in found])
    why = f" ({problem})" if problem else ""
    size = f" of {memory_gib:.0f} GiB" if memory_gib else ""
    return f"its offer promises {gpus} {gpu}{size}, it has {shown}{why}"


def told(models: Sequence[str]) -> str:
    """GPUs in words: "2 T4, 1 L4"."""
    return ", ".join(f"{models.count(one)} {one}" for one in dict.fromkeys(models)) or "no GPU"
