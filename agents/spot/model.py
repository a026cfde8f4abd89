"""What a spot policy has learned: beliefs about zones, and a table of choices."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass, fields

import numpy as np
import torch
from numpy.typing import NDArray

from spotweave.envs.simulation.series import Floats, Ints


@dataclass(frozen=True)
class Beliefs:
    """How zones behave, for one length of tick (see `agents.spot.decide`)."""

    going: Floats  # (FEATURES,) weights of the chance that a zone loses its spot in the next tick
    coming: Floats  # (FEATURES,) of the chance that a zone without spot gets some
    quality: Floats  # (SET_FEATURES,) of the share of the next hours in which any zone has spot
    going_edges: Floats  # edges between buckets of hazard
    coming_edges: Floats  # edges between buckets of return
    quality_edges: Floats  # edges between buckets of quality
    risk: float  # cost of an interruption, in ticks on demand
    crowd: int  # the largest number of zones with spot that is told apart
    tick_s: int  # length of a tick, seconds

    @property
    def arrays(self) -> tuple[Floats, Floats, Floats, Floats, Floats, Floats]:
        """The arrays in their order."""
        edges = self.going_edges, self.coming_edges, self.quality_edges
        return self.going, self.coming, self.quality, *edges

    @property
    def up_places(self) -> int:
        """States in which any zone has spot, whatever the quality."""
        return (len(self.going_edges) + 1) * self.crowd

    @property
    def n_states(self) -> int:
        """X, the number of states of the table."""
        return (self.up_places + len(self.coming_edges) + 1) * (len(self.quality_edges) + 1)


@dataclass(frozen=True)
class SpotModel:
    """Beliefs and the choices that follow from them."""

    beliefs: Beliefs  # how zones behave
    restarts_s: Ints  # (D,) overheads of a start that there is a table for, seconds
    table: NDArray[np.uint8]  # (D, 3, W, S, X) uint8 choices (see `agents.spot.fit`)
    work_step_s: int  # seconds of work between two rows of W

    def state_dict(self) -> dict[str, torch.Tensor]:
        """Everything as tensors, for a checkpoint; the table's bytes are compressed by zlib."""
        parts = {field.name: getattr(self.beliefs, field.name) for field in fields(self.beliefs)}
        packed = np.frombuffer(zlib.compress(np.ascontiguousarray(self.table).tobytes(), 9), np.uint8)
        parts |= {"restarts_s": self.restarts_s, "work_step_s": self.work_step_s}
        parts |= {"table": packed, "table_shape": np.array(self.table.shape)}
        return {name: torch.tensor(value) for name, value in parts.items()}

    @classmethod
    def of_state(cls, state: Mapping[str, torch.Tensor]) -> SpotModel:
        """What `state_dict` gave. Raises RuntimeError if it does not fit, as torch's modules do."""
        try:
            arrays = {name: tensor.numpy() for name, tensor in state.items()}
            numbers = {name: int(arrays.pop(name)) for name in ("crowd", "tick_s", "work_step_s")}
            risk, restarts_s = float(arrays.pop("risk")), arrays.pop("restarts_s")
            cells = np.frombuffer(zlib.decompress(arrays.pop("table").tobytes()), np.uint8)
            table: NDArray[np.uint8] = cells.reshape(tuple(arrays.pop("table_shape").tolist()))
            beliefs = Beliefs(**arrays, risk=risk, crowd=numbers["crowd"], tick_s=numbers["tick_s"])
        except (KeyError, TypeError, ValueError, zlib.error) as error:
            raise RuntimeError(f"not a spot model: {error}") from error
        if table.ndim != 5 or (len(table), table.shape[4]) != (len(restarts_s), beliefs.n_states):
            raise RuntimeError(f"a table of shape {table.shape} does not fit {beliefs.n_states} states")
        return cls(beliefs, restarts_s, table, numbers["work_step_s"])
