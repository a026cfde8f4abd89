"""Which engine carries out the tasks of a command, and with how many workers."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

from training.config import UsageError, typed
from training.engines.engine import Engine, LocalEngine

KEYS = ("engine", "workers", "ray")


@dataclass
class RaySettings:
    """Settings of the connection to Ray.

    Attributes:
        address: "auto" for the cluster that this machine belongs to, or HOST:PORT; None: one of our own.
    """

    __pydantic_config__ = ConfigDict(extra="forbid")

    address: str | None = None


@dataclass
class EngineSettings:
    """The engine that runs trainings; no result depends on it.

    Attributes:
        engine: "local", this machine, or "ray", a Ray cluster.
        workers: processes of this machine, or cores of a Ray of our own; 1 with "local": this process.
        ray: connection to Ray.
    """

    engine: Literal["local", "ray"] = "local"
    workers: Annotated[int, Field(ge=1)] = 1
    ray: RaySettings = field(default_factory=RaySettings)

    def open(self) -> AbstractContextManager[Engine | None]:
        """The engine; None: everything is done in this process.

        Raises:
            UsageError: if Ray is not installed, nothing answers at its address, or what is given to one
                engine is for another.
        """
        if self.engine == "ray":
            if self.ray.address is not None and self.workers > 1:
                raise UsageError(
                    f"workers={self.workers} was given with ray.address={self.ray.address}: a cluster has as "
                    "many as it has cores; leave workers= out"
                )
            from training.engines.ray_cluster import RayEngine  # sets what Ray reads from the environment

            return RayEngine(self.ray.address, self.workers)
        if self.ray.address is not None:
            raise UsageError(f"ray.address={self.ray.address} was given to engine=local: use engine=ray")
        return nullcontext() if self.workers == 1 else LocalEngine(self.workers)


HERE = EngineSettings()


def engine_settings(values: Mapping[str, Any]) -> EngineSettings:
    """Checked settings from the keys of a command's configuration. Raises UsageError."""
    return typed(EngineSettings, {name: values[name] for name in KEYS}, "")
