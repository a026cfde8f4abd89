"""Instances: their life as providers and node agents tell it."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from sqlalchemy import text

from deploy.model.instances import InstanceState
from deploy.security.keys import DeploymentKey, SecurityError
from deploy.store.errors import NotFoundError, StoreError
from deploy.store.store import Store
from tests.deploy.store.cases import SPOT, add_job, execute, rent, report, request
from tests.deploy.store.conftest import NOW, Place


def test_an_instance_comes_back_as_it_was_asked_for_also_after_a_restart(place: Place) -> None:
    with place.open() as store:
        add_job(store)
        asked = request(store)
    with place.open() as store:
        known = store.instances.get("i1")
        assert known == asked == store.instances.by_client_token("token-i1")
        assert (known.offer, known.node_token, known.state) == (SPOT, "secret of i1", InstanceState.REQUESTED)
        assert store.instances.by_client_token("token-i2") is None


def test_the_life_of_an_instance(store: Store) -> None:
    told = rent(store, state=InstanceState.RUNNING, launched_s=NOW + 5, now_s=NOW + 20)
    assert told.state is InstanceState.LAUNCHING, "its node agent has not answered"
    where = (told.provider_id, told.address, told.port)
    assert (*where, told.launched_s) == ("aws-i1", "127.0.1.1", 7000, NOW + 5)
    with store.transaction():
        assert store.instances.ready("i1", NOW + 30)
        assert not store.instances.ready("i1", NOW + 31)
        assert store.instances.noticed("i1", NOW + 150)
        assert not store.instances.noticed("i1", NOW + 150)
        assert store.instances.noticed("i1", None, rebalance=True)
    told = report(store, state=InstanceState.RUNNING, launched_s=NOW + 5, now_s=NOW + 40)
    assert told.state is InstanceState.RUNNING
    assert (told.ready_s, told.notice_s, told.rebalance) == (NOW + 30, NOW + 150, True)
    with store.transaction():
        assert store.instances.stopping("i1")
        assert not store.instances.stopping("i1")
    gone = InstanceState.TERMINATED
    told = report(store, "i1", gone, NOW + 5, now_s=NOW + 160, ended_s=NOW + 149, by_provider=True)
    assert (told.state, told.ended_s, told.by_provider) == (gone, NOW + 149, True)
    assert store.instances.live() == []
    assert store.instances.of_job("j1") == [told] == store.instances.latest(5)


@pytest.mark.real
def test_states_never_go_back_whatever_order_reports_come_in(store: Store) -> None:
    add_job(store)
    rank = list(InstanceState)
    for number, order in enumerate(itertools.permutations(rank[1:])):
        name = f"i{number}"
        request(store, name)
        with store.transaction():
            store.instances.ready(name, NOW)
        states = [report(store, name, state=state).state for state in order]
        assert states == sorted(states, key=rank.index)
        assert states[-1] is InstanceState.TERMINATED


def test_an_end_that_is_known_stays_as_it_was(store: Store) -> None:
    rent(store, launched_s=NOW)
    with store.transaction():
        assert store.instances.ended("i1", NOW + 100, by_provider=True)
    paid = store.costs.of_job("j1", NOW + 900)
    with store.transaction():
        assert not store.instances.ended("i1", NOW + 500)
        assert not store.instances.stopping("i1")
        assert not store.instances.noticed("i1", NOW + 150)
        assert not store.instances.ready("i1", NOW + 500)
    known = store.instances.get("i1")
    assert (known.state, known.ended_s, known.by_provider) == (InstanceState.TERMINATED, NOW + 100, True)
    assert store.costs.of_job("j1", NOW + 900) == paid


def test_ids_and_client_tokens_are_used_once(store: Store) -> None:
    add_job(store)
    request(store)
    with pytest.raises(StoreError, match="used once"):
        request(store)
    request(store, "i2")


def test_an_instance_of_no_job_or_with_no_price_is_refused(store: Store) -> None:
    with pytest.raises(Exception, match=r"(?i)foreign key"):
        request(store, job_id="j9")
    add_job(store)
    with pytest.raises(ValueError, match="expected 0 or more"):
        request(store, offer=replace(SPOT, price_usd_hour=float("nan")))
    with pytest.raises(NotFoundError, match="no instance 'i1'"):
        store.instances.get("i1")


def test_node_tokens_are_not_readable_in_the_database_nor_in_a_log(place: Place) -> None:
    with place.open() as store:
        add_job(store)
        request(store)
        assert "secret" not in repr(store.instances.get("i1"))
        with store._database.read() as connection:
            assert b"secret" not in bytes(connection.scalar(text("SELECT node_token FROM instances")))


def test_a_node_token_cannot_be_moved_to_another_instance(place: Place) -> None:
    with place.open() as store:
        add_job(store)
        request(store, "i1")
        request(store, "i2")
        execute(place, "UPDATE instances SET node_token = (SELECT node_token FROM instances LIMIT 1)")
        assert store.instances.get("i1").node_token == "secret of i1"
        with pytest.raises(SecurityError, match="instance i2 cannot be decrypted"):
            store.instances.get("i2")


def test_another_deployments_key_is_refused(place: Place) -> None:
    place.open().close()
    place.key_file.unlink()
    with pytest.raises(SecurityError, match="cannot read the key file"):
        place.open()
    DeploymentKey.load(place.key_file, create=True)
    with pytest.raises(StoreError, match="does not belong to the database"):
        place.open()


def test_the_live_instances_of_one_provider(store: Store) -> None:
    add_job(store)
    elsewhere = request(store, "i1", replace(SPOT, provider="gcp"))
    here = request(store, "i2")
    request(store, "i3")
    with store.transaction():
        store.instances.ended("i3", NOW + 1)
    assert list(store.instances.live("gcp")) == [elsewhere]
    assert list(store.instances.live(SPOT.provider)) == [here]
    assert list(store.instances.live()) == [elsewhere, here]


def test_the_first_certificate_of_a_node_stays(store: Store) -> None:
    add_job(store)
    request(store, "i1")
    request(store, "i2")
    with store.transaction():
        assert store.instances.joined("i1", "shown when it joined")
        assert store.instances.joined("i1", "shown when it joined")
        assert not store.instances.joined("i1", "shown by another")
    report(store, "i1")
    report(store, "i2", certificate="its provider's")
    report(store, "i2", certificate="another")
    report(store, "i2")
    assert store.instances.get("i1").certificate == "shown when it joined"
    assert store.instances.get("i2").certificate == "its provider's"
    assert "shown" not in repr(store.instances.get("i1"))
