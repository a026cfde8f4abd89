"""What every choice for one task is expected to cost, in one unit, whoever chooses: USD by one rule."""

from __future__ import annotations

from typing import cast

import numpy as np

from agents.rules.appraisal import appraise
from deploy.scheduler.snapshot.needs import Need
from deploy.scheduler.snapshot.view import View
from envs.simulation.snapshot import Observation, encode


class Appraisals:
    """Appraises the choices of a task."""

    def expected_usd(self, need: Need, view: View) -> dict[str | None, float]:
        """Expected USD until the task's end (of a federated client: until it has delivered next).

        Args:
            need: the task.
            view: of the offers.

        Returns:
            By offer id, and for None ("none for now"); within +-10,000. A place that cannot be had now is
            appraised as if it could.
        """
        observation = encode(view.snapshot([need]), 1)
        batch = {name: np.asarray(array)[None] for name, array in observation.items()}
        usd = appraise(cast(Observation, batch), 1).usd[0, 0]
        places: list[str | None] = [*(offer.offer_id for offer in view.offers), None]
        return {place: float(usd[k]) for k, place in enumerate(places)}
