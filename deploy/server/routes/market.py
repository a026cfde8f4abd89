"""Offers, instances and costs."""

from __future__ import annotations

from collections import Counter
from typing import Annotated

from fastapi import APIRouter, Depends, Query

from deploy.billing import Bill
from deploy.security.tokens import Role
from deploy.server.context import Context, SchedulerView
from deploy.server.views import ERRORS, CostsView, CostView, InstanceView, JobFilter, Limit, OfferView
from deploy.store.costs import Grouping
from deploy.store.store import Store


def router(context: Context, store: Store) -> APIRouter:
    """`/v1/instances` and `/v1/costs`."""
    routes = APIRouter(
        tags=["market"], dependencies=[Depends(context.access.require(Role.VIEWER))], responses=ERRORS
    )

    @routes.get("/v1/instances", summary="Those that exist, or may; or all of a job; or the latest")
    def instances(
        limit: Limit = 1000,
        job_id: JobFilter = None,
        ended: Annotated[bool, Query(description="Also those that have ended, the newest first")] = False,
    ) -> list[InstanceView]:
        if job_id is not None:
            found = [one for one in store.instances.of_job(job_id) if ended or one.state.live]
        else:
            found = list(store.instances.latest(limit) if ended else store.instances.live())
        return [InstanceView.of(one) for one in found[:limit]]

    @routes.get("/v1/costs", summary="What the latest of a kind, and everything, have cost so far")
    def costs(by: Grouping = Grouping.JOB, limit: Limit = 1000) -> CostsView:
        now_s = context.clock.now()
        with store.snapshot():
            groups, total = store.costs.latest(by, limit, now_s), store.costs.total(now_s)
        listed = sum(groups.values(), Bill())
        return CostsView(
            by=by,
            groups={name: CostView.of(bill) for name, bill in groups.items()},
            others=None if listed == total else CostView.of(total - listed),
            total=CostView.of(total),
        )

    return routes


def offers(context: Context, store: Store, scheduler: SchedulerView) -> APIRouter:
    """`/v1/offers`."""
    routes = APIRouter(
        tags=["market"], dependencies=[Depends(context.access.require(Role.VIEWER))], responses=ERRORS
    )

    @routes.get("/v1/offers", summary="What can be rented, as it was in the scheduler's latest pass")
    def all_offers() -> list[OfferView]:
        used = Counter(one.offer.offer_id for one in store.instances.live())
        return [OfferView.of(one, used[one.offer_id]) for one in scheduler.offers()]

    return routes
