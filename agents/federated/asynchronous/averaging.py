"""Averages of models and differences: FedAvg, FedAsync, FedBuff, AsynDA and AsynMA, each with its source."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from spotweave.agents.federated.asynchronous.aggregator import (
    BufferedAggregator,
    Invitation,
    Update,
    UpdateError,
    Uploads,
    Vector,
    above_zero,
    at_least,
    weighted_mean,
)

# AsynDA: asynchronous averaging of differences (Liu 2022, Eq. 6.3), or of gradients (asynchronous SGD).


class AsynDA(BufferedAggregator):
    """The first W updates to arrive make the next model, whoever sent them.

    M_{r+1} = M_r + eta sum(p_i D_i) / sum(p_i), with D_i against the version that participant i began with.

    Args:
        model: (d,) initial weights.
        round_updates: W.
        uploads: "difference" or "gradient".
        rate: eta of differences, gamma of gradients.
    """

    def __init__(
        self, model: Vector, round_updates: int, uploads: Uploads = "difference", rate: float = 1.0
    ) -> None:
        super().__init__(model, uploads, round_updates)
        above_zero("rate", rate)
        self._rate = rate

    def _next_model(self, chosen: Sequence[Update], staleness: Sequence[int]) -> Vector:
        return self._stepped(weighted_mean(chosen), self._rate)


# AsynMA: Eq. 6.2 of Liu 2022 used as it stands without synchronisation, which can oscillate (Figure 6.4).


class AsynMA(BufferedAggregator):
    """The mean of the first W local models to arrive replaces the model.

    Args:
        model: (d,) initial weights.
        round_updates: W.
    """

    def __init__(self, model: Vector, round_updates: int) -> None:
        super().__init__(model, "model", round_updates)

    def _next_model(self, chosen: Sequence[Update], staleness: Sequence[int]) -> Vector:
        return weighted_mean(chosen).astype(self.model.dtype)


# FedAsync: every local model is mixed in as it arrives (Xie, Koyejo, Gupta 2019, Algorithm 1).


class FedAsync(BufferedAggregator):
    """x_t = (1 - alpha_t) x_{t-1} + alpha_t x_new, alpha_t = alpha (t - tau + 1)**-a ("polynomial").

    Args:
        model: (d,) initial weights.
        mixing: alpha, in (0, 1].
        exponent: a; 0 mixes alike whatever the staleness.
    """

    def __init__(self, model: Vector, mixing: float = 0.6, exponent: float = 0.5) -> None:
        super().__init__(model, "model", 1)
        if not 0 < mixing <= 1:
            raise UpdateError(f"mixing weight alpha is {mixing:g}: expected more than 0 and at most 1")
        at_least("exponent a", exponent, 0)
        self._mixing = mixing
        self._exponent = exponent

    def _next_model(self, chosen: Sequence[Update], staleness: Sequence[int]) -> Vector:
        # t is the number of the new model, so t - tau is 1 for an update of the current one.
        weight = self._mixing * (2.0 + staleness[0]) ** -self._exponent
        mixed: Vector = (1.0 - weight) * self.model + weight * chosen[0].values
        return mixed.astype(self.model.dtype)


# FedBuff: buffered asynchronous aggregation (Nguyen et al., AISTATS 2022, Algorithm 1).


class FedBuff(BufferedAggregator):
    """w += eta_g / K sum_i s(tau_i) D_i with s(tau) = 1 / sqrt(1 + tau), once K differences are stored.

    Args:
        model: (d,) initial weights.
        round_updates: K, the size of the buffer.
        rate: eta_g.
    """

    def __init__(self, model: Vector, round_updates: int, rate: float = 1.0) -> None:
        super().__init__(model, "difference", round_updates)
        above_zero("rate", rate)
        self._rate = rate

    def _next_model(self, chosen: Sequence[Update], staleness: Sequence[int]) -> Vector:
        scales = 1.0 / np.sqrt(1.0 + np.asarray(staleness, dtype=float))
        total: Vector = np.tensordot(scales, np.stack([update.values for update in chosen]), axes=1)
        return self._stepped(total / len(chosen), self._rate)


# FedAvg: synchronous rounds of W participants (McMahan et al. 2017; Eq. 6.2 of Liu 2022).


class FedAvg(BufferedAggregator):
    """Draws W participants, waits for all of them, averages. With gradients: synchronous SGD.

    With differences and a rate of 1 the mean of the local models is the model plus the mean difference, as
    all have the same base.

    Args:
        model: (d,) initial weights.
        participants: N.
        round_updates: W, drawn uniformly without replacement for each round.
        generator: of the draws.
        uploads: "difference" or "gradient".
        rate: eta of differences, gamma of gradients.
    """

    def __init__(
        self,
        model: Vector,
        participants: int,
        round_updates: int,
        generator: np.random.Generator,
        uploads: Uploads = "difference",
        rate: float = 1.0,
    ) -> None:
        super().__init__(model, uploads, round_updates)
        if round_updates > participants:
            raise UpdateError(
                f"{round_updates} updates per round: expected at most {participants}, as many as participants"
            )
        above_zero("rate", rate)
        self._participants = participants
        self._generator = generator
        self._rate = rate
        self._invited_for = -1

    def invite(self, idle: Sequence[int]) -> list[Invitation]:
        """The participants drawn at the start of a round; none until it ends."""
        if self._invited_for == self.version:
            return []
        self._invited_for = self.version
        drawn = self._generator.choice(self._participants, self._needed, replace=False)
        return [Invitation(int(participant), self.version) for participant in drawn]

    def _next_model(self, chosen: Sequence[Update], staleness: Sequence[int]) -> Vector:
        return self._stepped(weighted_mean(chosen), self._rate)
