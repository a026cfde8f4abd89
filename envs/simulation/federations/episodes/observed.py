"""One application as policies see it that read observations: each question a row, each action an answer."""

from __future__ import annotations

import numpy as np

from envs.simulation import columns as col
from envs.simulation.federations.episodes.estimates import ViewEstimates
from envs.simulation.federations.episodes.picture import OfferColumns, fill_task
from envs.simulation.federations.rounds.decisions import Answer, Cause, Leave, Placement, Question
from envs.simulation.federations.rounds.running import RunningApplication
from envs.simulation.round_estimates import ASK_AGAIN_LEAST_S, ask_again_s, slack_s
from envs.simulation.snapshot import Observation


class Observed:
    """Writes the questions of one application into a lane of observations.

    Args:
        view: the application while it runs.
        observation: of all lanes, with a window of one.
        lane: which of them is this application's.
        measured: whether the tasks' mean times are known beforehand (pre-scheduling).

    Attributes:
        known: what the application has shown so far.
    """

    def __init__(self, view: RunningApplication, observation: Observation, lane: int, measured: bool) -> None:
        self._view = view
        self._epoch_cv = view.application.epoch_cv
        self._observation = observation
        self._lane = lane
        self._n_offers = observation["clusters"].shape[1]
        self._offers = OfferColumns(view.application, self._n_offers)
        self.known = ViewEstimates(view, measured)

    def show(self, question: Question) -> Leave | None:
        """Show a question. `Leave` where no policy is asked: the client's budget cannot pay for the round."""
        self.known.observe()
        self._offers.fill(self._view, self._observation["clusters"][self._lane])
        fill_task(self._observation, self._lane, question, self._view, self.known)
        return Leave() if self._must_leave(question) else None

    def answer(self, question: Question, action: int) -> Answer:
        """What an action means: an offer from now on, or no instance until the task is asked again."""
        if action < self._n_offers:
            return Placement(action)
        first = self._view.member(question.client).allowed[0]
        if self._observation["jobs"][self._lane, 0, col.EXECUTIONS] == 0:
            return Placement(first, np.inf)
        return Placement(first, self._view.now_s + int(ask_again_s(self._slack_s(question))))

    def _slack_s(self, question: Question) -> float:
        """Until the latest start in time, on the offer that leaves most time."""
        job, pairs = self._observation["jobs"][self._lane, 0], self._observation["pairs"][self._lane, 0]
        clusters = self._observation["clusters"][self._lane]
        owes, left_s, round_s = (float(job[k]) for k in (col.OWES, col.ROUND_LEFT_S, col.ROUND_S))
        return max(
            float(
                slack_s(
                    owes > 0,
                    left_s,
                    round_s,
                    float(clusters[offer, col.LAUNCH_S] + pairs[offer, col.TRANSFER_S]),
                    float(pairs[offer, col.EXECUTION_S]),
                )
            )
            for offer in self._view.member(question.client).allowed
        )

    def _must_leave(self, question: Question) -> bool:
        """Before a round: whether a client's budget cannot pay for it, so that it would lose its work."""
        client = self._view.member(question.client)
        if question.cause is not Cause.ROUND or client.budget_usd is None:
            return False
        left = client.budget_usd - self._view.spent_usd(question.client)
        return not any(
            self._round_usd(offer) <= left
            for offer in client.allowed
            if self._view.available(offer) or client.offer == offer
        )

    def _round_usd(self, offer: int) -> float:
        """What a client pays for the coming round on an offer, with a margin for a late start."""
        pair = self._observation["pairs"][self._lane, 0, offer]
        seconds = float(pair[col.FINISH_S]) + 2 * ASK_AGAIN_LEAST_S
        return (1.0 + 3.0 * self._epoch_cv) * seconds * self._view.usd_hour(offer) / 3600
