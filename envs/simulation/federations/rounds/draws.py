"""Everything random in an application, as a function of the seed alone: no decision changes any of it."""

from __future__ import annotations

import math
from bisect import bisect_right

import numpy as np

from spotweave.envs.simulation.federations.rounds.application import Application
from spotweave.envs.simulation.federations.rounds.member import Member
from spotweave.envs.simulation.series import Floats
from spotweave.envs.simulation.streams import Streams, exp

_BLOCK = 16


class Draws:
    """Epoch times, spin-up times and interruptions of one episode.

    Times vary log-normally around the clients' means with the application's coefficients of variation, and
    are whole seconds of at least 1 (a spin-up may take none).

    Args:
        application: what is simulated.
        root: seed, or seed sequence of an episode (`envs.simulation.streams.episode_sequence`).
    """

    def __init__(self, application: Application, root: int | np.random.SeedSequence) -> None:
        streams = Streams(root)
        clients, rounds = application.clients, application.rounds
        shape = (len(clients), rounds)
        epoch = _factors(streams.generator("job_sizes"), application.epoch_cv, shape)
        self._run_factor = 1.0
        if application.run_cv:
            sequence = streams.sequence("job_sizes")
            key = (*sequence.spawn_key, len(clients))
            generator = np.random.default_rng(np.random.SeedSequence(sequence.entropy, spawn_key=key))
            self._run_factor = float(_factors(generator, application.run_cv, (1, 1))[0, 0])
            epoch *= self._run_factor
        self._epoch_factors: list[list[float]] = epoch.tolist()
        warm = np.array([client.epoch_warm_s for client in clients])[:, None] * epoch
        cold = np.array([client.epoch_cold_s for client in clients])[:, None] * epoch
        self.warm_s: list[list[int]] = _seconds(warm, 1)
        """[client][round] whole seconds of one epoch on an instance that has trained before."""
        self.cold_s: list[list[int]] = np.maximum(_seconds(cold, 1), self.warm_s).tolist()
        """[client][round] the same, first on a new instance."""
        spin_up = _factors(streams.generator("launches"), application.spin_up_cv, shape)
        self._spin_up_factors: list[list[float]] = spin_up.tolist()
        self._application = application
        self._streams = streams
        self._given: list[list[int]] = [[] for _ in range(len(clients) + 1)]
        for interruption in sorted(application.interruptions, key=lambda item: item.time_s):
            self._given[interruption.client].append(interruption.time_s)
        self._random: dict[tuple[int, int], _PoissonTimes] = {}
        self._falls: dict[int, list[int]] = {
            k: [
                int(time)
                for time, before, after in zip(
                    series.times_s[1:], series.values[:-1], series.values[1:], strict=True
                )
                if before > 0 >= after
            ]
            for k, series in enumerate(offer.availability for offer in application.offers)
            if series is not None
        }

    def epoch_s(self, client: int, offer: int, round_index: int) -> tuple[float, float]:
        """Seconds of a client's warm and cold epoch on an offer, not rounded, messages excluded."""
        times = self._application.clients[client].times(offer)
        factor = self._epoch_factors[client][round_index]
        return times.warm_s * factor, times.cold_s * factor

    def spin_up_s(self, client: int, round_index: int, attempt: int, offer: int = 0) -> int:
        """Whole seconds of the `attempt`-th spin-up (from 0) of a client, or of SERVER, for a round."""
        application = self._application
        task = application.clients[client] if client >= 0 else application.server
        assert task is not None
        mean_s = application.spin_up_s(task, offer) * self._run_factor
        if client >= 0 and (attempt == 0 or not application.spin_up_cv):
            return max(0, round(mean_s * self._spin_up_factors[client][round_index]))
        sequence = self._streams.sequence("launches")
        key = (*sequence.spawn_key, client % (len(application.clients) + 1), round_index, attempt)
        generator = np.random.default_rng(np.random.SeedSequence(sequence.entropy, spawn_key=key))
        return _seconds(mean_s * _factors(generator, application.spin_up_cv, (1, 1)), 0)[0][0]

    def next_interruption_s(self, client: int, offer: int, after_s: int) -> int | None:
        """The first time after `after_s` at which the provider takes this task's instance on this offer.

        `client` may be SERVER, which is -1: the lists have its entry last.
        """
        times = [_first_after(self._given[client], after_s)]
        if offer in self._falls:
            times.append(_first_after(self._falls[offer], after_s))
        mean = self._application.offers[offer].mean_time_to_interruption_s
        if mean is not None:
            if (client, offer) not in self._random:
                sequence = self._streams.sequence("revocations")
                key = (*sequence.spawn_key, client % len(self._given), offer)
                generator = np.random.default_rng(np.random.SeedSequence(sequence.entropy, spawn_key=key))
                self._random[client, offer] = _PoissonTimes(generator, mean)
            times.append(self._random[client, offer].after(after_s))
        return min((time for time in times if time is not None), default=None)


class _PoissonTimes:
    """The times of a Poisson process, drawn as far as somebody looks: the same whoever looks, and when."""

    def __init__(self, generator: np.random.Generator, mean_s: float) -> None:
        self._generator = generator
        self._mean_s = mean_s
        self._last = 0.0
        self._times: list[int] = []

    def after(self, time_s: int) -> int:
        while not self._times or self._times[-1] <= time_s:
            drawn = self._last + np.cumsum(self._generator.exponential(self._mean_s, _BLOCK))
            self._last = float(drawn[-1])
            self._times += [math.ceil(time) for time in drawn]
        return self._times[bisect_right(self._times, time_s)]


def _first_after(times: list[int], time_s: int) -> int | None:
    at = bisect_right(times, time_s)
    return times[at] if at < len(times) else None


def _factors(generator: np.random.Generator, cv: float, shape: tuple[int, int]) -> Floats:
    """Log-normal factors of mean 1. Drawn even without variation, so that a cv changes no other draw."""
    sigma = math.sqrt(math.log1p(cv * cv))
    return exp(sigma * generator.standard_normal(shape) - sigma * sigma / 2)


def _seconds(values: Floats, least: int) -> list[list[int]]:
    rounded: list[list[int]] = np.maximum(np.rint(values), least).astype(np.int64).tolist()
    return rounded


# How long epochs, messages and aggregations take where tasks are: instance types, links, degradations.


class Durations:
    """One application's times.

    Args:
        application: what is simulated.
        draws: its random times.
        server: the server where it is a task of its own.
    """

    def __init__(self, application: Application, draws: Draws, server: Member | None) -> None:
        self._application = application
        self._draws = draws
        self._server = server
        checkpoints = application.checkpoints
        self._client_checkpoint_s = 0.0 if checkpoints is None else checkpoints.client_round_s

    def epoch_s(self, member: Member, round_index: int, now_s: int) -> tuple[int, int]:
        """Whole seconds of a client's warm and cold epoch that begins now, messages included."""
        if self._application.plain:
            draws, client = self._draws, member.index
            return draws.warm_s[client][round_index], draws.cold_s[client][round_index]
        assert member.offer is not None
        warm_s, cold_s = self._draws.epoch_s(member.index, member.offer, round_index)
        slowdown = self._slowdown(member.offer, now_s)
        member.messages_s = self._messages_s(member.offer) * self._link_slowdown(member.offer, now_s)
        exact_s = warm_s * slowdown + member.messages_s + self._client_checkpoint_s + member.carried_s
        whole_s = max(1, round(exact_s))
        # What rounding takes off one epoch is added to the next: many short rounds last what they should.
        member.carried_s = exact_s - whole_s
        return whole_s, whole_s + round((cold_s - warm_s) * slowdown)

    def expected_epoch_s(self, client: int, offer: int, cold: bool) -> float:
        """Mean seconds of a client's epoch on an offer, messages to the server's place included."""
        times = self._application.clients[client].times(offer)
        beside_s = self._messages_s(offer) + self._client_checkpoint_s
        return (times.cold_s if cold else times.warm_s) + beside_s

    def aggregation_s(self, round_index: int, now_s: int) -> int:
        """Whole seconds of the aggregation that begins now, checkpointing included."""
        application, server = self._application, self._server
        if server is None:
            return application.aggregation_s
        assert server.offer is not None
        seconds = application.server_aggregation_s(server.offer) * self._slowdown(server.offer, now_s)
        if application.checkpoints is not None:
            seconds += application.checkpoints.after_round_s(round_index + 1)
        seconds += server.carried_s
        server.carried_s = seconds - round(seconds)
        return round(seconds)

    def expected_aggregation_s(self) -> int:
        """Whole seconds of an aggregation on the server's present offer, without saving a checkpoint."""
        assert self._server is not None
        assert self._server.offer is not None
        checkpoints = self._application.checkpoints
        every_round_s = 0.0 if checkpoints is None else checkpoints.round_s
        return round(self._application.server_aggregation_s(self._server.offer) + every_round_s)

    def _messages_s(self, offer: int) -> float:
        """Mean seconds of a client's messages per round, with the server's present place; 0 before that."""
        if self._server is None or self._server.offer is None:
            return 0.0
        return self._application.message_s(offer, self._server.offer)

    def _slowdown(self, offer: int, now_s: int) -> float:
        """How much slower than expected instances on an offer compute now."""
        return math.prod(
            item.slowdown
            for item in self._application.degradations
            if item.offer == offer and item.holds(now_s)
        )

    def _link_slowdown(self, offer: int, now_s: int) -> float:
        """How much slower than expected messages between an offer and the server are now."""
        if self._server is None or self._server.offer is None:
            return 1.0
        offers = self._application.offers
        ends = {offers[offer].zone, offers[self._server.offer].zone}
        return math.prod(
            item.slowdown
            for item in self._application.degradations
            if item.link is not None and set(item.link) == ends and item.holds(now_s)
        )
