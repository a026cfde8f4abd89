"""An application that begins later: its own clock starts then, and the offers are what they are by then."""

from __future__ import annotations

import dataclasses

from envs.simulation.federations.rounds.application import Application, Offer
from envs.simulation.federations.rounds.server import Degradation
from envs.simulation.series import StepSeries


def begun_at(application: Application, time_s: int) -> Application:
    """The application with prices, availability and degradations counted from `time_s` on.

    Given interruptions stay: they are seconds of the application's own clock, as random ones are.
    """
    if not time_s:
        return application
    return dataclasses.replace(
        application,
        offers=tuple(_offer(offer, time_s) for offer in application.offers),
        degradations=tuple(
            _degradation(item, time_s)
            for item in application.degradations
            if item.until_s is None or item.until_s > time_s
        ),
    )


def _offer(offer: Offer, time_s: int) -> Offer:
    series = offer.availability
    return dataclasses.replace(
        offer,
        tariff=offer.tariff.counted_from(time_s),
        availability=None if series is None else StepSeries(series.times_s - time_s, series.values),
    )


def _degradation(item: Degradation, time_s: int) -> Degradation:
    return dataclasses.replace(
        item,
        from_s=max(0, item.from_s - time_s),
        until_s=None if item.until_s is None else item.until_s - time_s,
    )
