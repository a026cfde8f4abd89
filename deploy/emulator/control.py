"""The control interface under /_emulator/: JSON in, JSON out, for tests and rehearsals.

GET  state       time, instances, what went wrong so far
GET  calls       how often each action was called
GET  ledger      every instance's bill, and the sum
POST clock       {"advance_s": 60}: a virtual clock goes on
POST faults      the fields of FaultConfig: what goes wrong from now on
POST interrupt   {"instance_id": "i-…", "notice_s": 120}: the market takes it away
POST pool        {"zone": …, "instance_type": …, "spot_capacity": 0}: room for launches from now on
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, ValidationError

from deploy.emulator.emulator import Emulator
from deploy.emulator.faults import FaultConfig
from deploy.emulator.ledger import total_usd

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIEnvironment

PREFIX = "/_emulator/"


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid")


class _Clock(_Body):
    advance_s: Annotated[FiniteFloat, Field(ge=0)]


class _Interrupt(_Body):
    instance_id: str
    notice_s: Annotated[FiniteFloat, Field(ge=0)] = 120.0


class _Pool(_Body):
    zone: str
    instance_type: str
    spot_capacity: Annotated[int, Field(ge=0)] | None = None
    on_demand_capacity: Annotated[int, Field(ge=0)] | None = None


class _RefusedError(Exception):
    """One line for whoever asked."""


class Control:
    """Answers for one emulator."""

    def __init__(self, emulator: Emulator) -> None:
        self._emulator = emulator
        self._reads: dict[str, Callable[[], Any]] = {
            "state": self._state,
            "calls": lambda: dict(sorted(emulator.calls.items())),
            "ledger": self._ledger,
        }
        self._writes: dict[str, Callable[[bytes], Any]] = {
            "clock": self._clock,
            "faults": self._faults,
            "interrupt": self._interrupt,
            "pool": self._pool,
        }

    def answer(self, environ: WSGIEnvironment) -> tuple[int, bytes]:
        """Status and JSON."""
        name = environ.get("PATH_INFO", "").removeprefix(PREFIX)
        method = environ.get("REQUEST_METHOD")
        try:
            with self._emulator.world.lock:
                self._emulator.world.settle()
                if method == "GET" and name in self._reads:
                    return 200, json.dumps(self._reads[name]()).encode()
                if method == "POST" and name in self._writes:
                    body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
                    return 200, json.dumps(self._writes[name](body)).encode()
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(str(part) for part in first["loc"]) or "the body"
            return 400, json.dumps({"error": f"{where}: {first['msg']}"}).encode()
        except _RefusedError as error:
            return 400, json.dumps({"error": str(error)}).encode()
        known = [f"GET {one}" for one in self._reads] + [f"POST {one}" for one in self._writes]
        return 404, json.dumps({"error": f"{method} {name}: expected one of {', '.join(known)}"}).encode()

    def _state(self) -> Any:
        world = self._emulator.world
        states: dict[str, int] = {}
        for one in world.instances.values():
            states[one.state] = states.get(one.state, 0) + 1
        return {
            "now_s": world.clock.now(),
            "next_s": world.next_s(),
            "instances": states,
            "interruptions": world.interruptions,
            "faults": dict(self._emulator.faults.counts),
        }

    def _ledger(self) -> Any:
        entries = self._emulator.ledger()
        return {"entries": [one.json() for one in entries], "total_usd": float(total_usd(entries))}

    def _clock(self, body: bytes) -> Any:
        given = _Clock.model_validate_json(body)
        if self._emulator.config.clock != "virtual":
            raise _RefusedError("the clock is real: set clock: virtual in the configuration")
        self._emulator.advance(given.advance_s)
        return self._state()

    def _faults(self, body: bytes) -> Any:
        self._emulator.faults.change(FaultConfig.model_validate_json(body))
        return self._emulator.faults.config.model_dump()

    def _interrupt(self, body: bytes) -> Any:
        given = _Interrupt.model_validate_json(body)
        instance = self._emulator.world.instances.get(given.instance_id)
        if instance is None or not instance.spot or not instance.occupies:
            raise _RefusedError(f"{given.instance_id} is no spot instance that runs")
        self._emulator.world.interrupt(instance, given.notice_s)
        return self._state()

    def _pool(self, body: bytes) -> Any:
        given = _Pool.model_validate_json(body)
        pool = self._emulator.world.market.find(given.zone, given.instance_type)
        if pool is None:
            raise _RefusedError(f"there is no pool of {given.instance_type} in {given.zone}")
        if given.spot_capacity is not None:
            pool.spot_capacity = given.spot_capacity
        if given.on_demand_capacity is not None:
            pool.on_demand_capacity = given.on_demand_capacity
        return {"spot_capacity": pool.spot_capacity, "on_demand_capacity": pool.on_demand_capacity}
