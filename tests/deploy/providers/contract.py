"""What every provider keeps, whatever it rents: tests to inherit from, given a world to rent in."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

import pytest

from spotweave.deploy.model.instances import InstanceReport, InstanceState, LaunchRequest
from spotweave.deploy.providers.base import CapacityError, Provider, QuotaError, RefusedError

DEPLOYMENT = "contract"


class World(Protocol):
    """One account at a provider, as a test module supplies it by a fixture called `world`.

    Attributes:
        open_offer: spot, can be launched, quota of 2.
        closed_offer: exists, and has no capacity now.
        price_usd_hour: of the open offer, now.
    """

    open_offer: str
    closed_offer: str
    price_usd_hour: float

    def provider(self) -> Provider:
        """A provider that knows nothing from memory, as after a restart."""

    def settle(self) -> None:
        """Let pass what a launch takes."""

    def interrupt(self, instance_id: str) -> None:
        """The provider takes an instance away, at once."""


def request(offer_id: str, token: str | None = None, deployment: str = DEPLOYMENT) -> LaunchRequest:
    """A launch with a token of its own."""
    return LaunchRequest(
        client_token=token or secrets.token_hex(8),
        offer_id=offer_id,
        deployment=deployment,
        job_id="job-1",
        task="main",
        node_token=secrets.token_urlsafe(32),
    )


def by_id(reports: Sequence[InstanceReport]) -> dict[str, InstanceReport]:
    """Reports by instance, each once."""
    found = {report.instance_id: report for report in reports}
    assert len(found) == len(reports)
    return found


class ProviderContract:
    """Inherit from it, and give it a fixture `world`."""

    def test_offers_are_complete_and_named_once(self, world: World) -> None:
        provider = world.provider()
        offers = {offer.offer_id: offer for offer in provider.offers()}
        assert len(offers) == len(provider.offers())
        assert {offer.provider for offer in offers.values()} == {provider.name}
        opened, closed = offers[world.open_offer], offers[world.closed_offer]
        assert opened.available
        assert opened.price_usd_hour == pytest.approx(world.price_usd_hour)
        assert opened.market == "spot"
        assert not closed.available
        assert closed.reason
        for offer in offers.values():
            assert offer.price_usd_hour >= 0
            assert offer.quota >= 1
            assert 0 <= offer.up_ratio <= 1

    def test_an_instance_lives_and_is_billed_until_it_is_ended(self, world: World) -> None:
        provider = world.provider()
        asked = request(world.open_offer)
        launched = provider.launch(asked)
        assert launched.client_token == asked.client_token
        assert launched.state in (InstanceState.LAUNCHING, InstanceState.RUNNING)
        for printed in (repr(asked), repr(launched)):
            assert asked.node_token not in printed, "it is a secret"
        # Closing a provider leaves its instances.
        provider.close()
        world.settle()
        provider = world.provider()
        running = by_id(provider.describe(DEPLOYMENT))[launched.instance_id]
        assert running.state is InstanceState.RUNNING
        assert running.address
        assert running.node_port > 0
        assert dict(running.tags) == {"deployment": DEPLOYMENT, "job_id": "job-1", "task": "main"}
        assert (running.ended_s, running.by_provider) == (None, False)
        provider.terminate([launched.instance_id, "never-was"])
        ended = by_id(provider.describe(DEPLOYMENT))[launched.instance_id]
        assert ended.state is InstanceState.TERMINATED
        assert not ended.by_provider
        assert ended.launched_s == running.launched_s
        assert ended.ended_s is not None
        assert ended.ended_s >= ended.launched_s
        # Ending it twice, or nothing, is no error.
        provider.terminate([launched.instance_id])
        provider.terminate([])
        assert by_id(provider.describe(DEPLOYMENT))[launched.instance_id] == ended

    def test_a_token_gives_one_instance_of_one_offer_even_after_a_restart(self, world: World) -> None:
        asked = request(world.open_offer)
        first = world.provider().launch(asked)
        again = world.provider().launch(asked)
        assert (again.instance_id, again.launched_s) == (first.instance_id, first.launched_s)
        assert list(by_id(world.provider().describe(DEPLOYMENT))) == [first.instance_id]
        with pytest.raises(RefusedError):
            world.provider().launch(replace(asked, offer_id=world.closed_offer))
        # Nor does one of an ended instance give a new one.
        world.provider().terminate([first.instance_id])
        again = world.provider().launch(asked)
        assert (again.instance_id, again.state) == (first.instance_id, InstanceState.TERMINATED)

    def test_no_capacity_an_unknown_offer_and_a_full_quota_are_told_apart(self, world: World) -> None:
        provider = world.provider()
        with pytest.raises(CapacityError):
            provider.launch(request(world.closed_offer))
        with pytest.raises(RefusedError):
            provider.launch(request("no/such/offer"))
        held = [provider.launch(request(world.open_offer)) for _ in range(2)]
        asked = request(world.open_offer)
        with pytest.raises(QuotaError):
            provider.launch(asked)
        # A refused launch leaves nothing, and may be repeated.
        assert set(by_id(provider.describe(DEPLOYMENT))) == {report.instance_id for report in held}
        provider.terminate([held[0].instance_id])
        world.settle()
        assert provider.launch(asked).state.live

    def test_deployments_do_not_see_each_other(self, world: World) -> None:
        mine = world.provider().launch(request(world.open_offer))
        other = world.provider().launch(request(world.open_offer, deployment="other"))
        assert list(by_id(world.provider().describe(DEPLOYMENT))) == [mine.instance_id]
        assert list(by_id(world.provider().describe("other"))) == [other.instance_id]

    def test_an_interruption_is_the_providers_doing(self, world: World) -> None:
        provider = world.provider()
        launched = provider.launch(request(world.open_offer))
        world.settle()
        world.interrupt(launched.instance_id)
        ended = by_id(world.provider().describe(DEPLOYMENT))[launched.instance_id]
        assert (ended.state, ended.by_provider) == (InstanceState.TERMINATED, True)
        assert ended.ended_s is not None
        assert ended.ended_s >= ended.launched_s
        # And stays so when the scheduler, late, ends it too.
        provider.terminate([launched.instance_id])
        assert by_id(provider.describe(DEPLOYMENT))[launched.instance_id] == ended
