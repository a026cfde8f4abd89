"""Where the episodes of a federated world come from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from envs.simulation.federations.rounds.application import Application
from envs.simulation.world import EpisodeKey


class ApplicationSource(Protocol):
    """Gives each episode its application; a pure function of the key."""

    @property
    def n_offers(self) -> int:
        """The most offers an application has."""

    @property
    def offer_names(self) -> tuple[str, ...]:
        """(n_offers,) what pictures and tables call them."""

    def application(self, key: EpisodeKey) -> Application:
        """The application of an episode."""


@dataclass(frozen=True)
class OneApplication:
    """The same application in every episode; what is random in it still follows the key.

    Attributes:
        given: the application.
    """

    given: Application

    @property
    def n_offers(self) -> int:
        """Offers of the application."""
        return len(self.given.offers)

    @property
    def offer_names(self) -> tuple[str, ...]:
        """Their names."""
        return tuple(offer.name for offer in self.given.offers)

    def application(self, key: EpisodeKey) -> Application:
        """The application, whatever the key."""
        return self.given
