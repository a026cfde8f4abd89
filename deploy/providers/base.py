"""The interface of all providers, and the ways in which they fail."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from spotweave.deploy.model.instances import InstanceReport, LaunchRequest, Offer


class ProviderError(Exception):
    """A provider could not do what it was asked; trying again later may help."""


class CapacityError(ProviderError):
    """No capacity on this offer now: try another offer, and this one later."""


class QuotaError(ProviderError):
    """The account's own limit is reached on this offer: only ending an instance helps."""


class ThrottledError(ProviderError):
    """Too many requests: wait, then try the same again."""


class RefusedError(ProviderError):
    """The request itself is wrong (credentials, permission, offer, image): permanent, do not retry."""


class PartialError(ProviderError):
    """Some regions did not answer. What is not among `reports` may be there all the same, in one of those."""

    def __init__(self, reports: Sequence[InstanceReport], silent: Mapping[str, ProviderError]) -> None:
        names = ", ".join(silent)
        super().__init__(f"no answer from {names}: {next(iter(silent.values()))}")
        self.reports, self.silent = reports, silent


class Provider(Protocol):
    """Rents instances. All methods are safe to repeat and may be called from several threads."""

    @property
    def name(self) -> str:
        """As in `Offer.provider`."""

    def offers(self) -> Sequence[Offer]:
        """Everything that can be rented, with its price and availability now.

        What is in a region that does not answer is not available, and its reason says so. Raises
        ProviderError if the provider cannot be asked now.
        """

    def launch(self, request: LaunchRequest) -> InstanceReport:
        """Rent one instance; with a client token that was used before, report that instance again.

        Raises:
            CapacityError, QuotaError, ThrottledError, RefusedError, ProviderError: see there. Where it is not
                known whether an instance was rented (a timeout), ProviderError: the same token tells later.
        """

    def describe(self, deployment: str) -> Sequence[InstanceReport]:
        """Every instance with this deployment's tag, terminated ones for at least an hour.

        Raises PartialError if some regions cannot be asked now: it has the reports of the others;
        ProviderError if the provider cannot be asked now.
        """

    def terminate(self, instance_ids: Sequence[str]) -> None:
        """End instances; those that have ended already, or never were, are no error.

        Raises ProviderError if not all could be ended now, or it is not known; all that could be, were.
        """

    def close(self) -> None:
        """Let go of connections. Instances stay."""
