"""job.json, env.json and map.json: reading and checking them, and writing map.json.

job.json and env.json are those of Teylo 2021, Figure 4.5: memory of tasks in MB, of VMs in GB, times in
seconds, "baseline" in percent. The figure has no prices: an instance may have

    "prices": {"on-demand": 0.105, "spot": 0.0299}

in USD per hour; those of the types in Tables 9.1 and 9.7 are known without it.

The thesis names map.json, but does not show it:

    {"job_id": 10, "job_name": "Test", "planner": "hads", "deadline_s": 2100, "d_spot_s": 1750,
     "makespan_s": 367.4, "cost_usd": 0.003,
     "vms": [{"type": "c3.large", "market": "spot", "number": 1, "mode": "full",
              "tasks": [{"task": "0", "core": 0, "start_s": 0, "end_s": 183.7,
                         "checkpoint_interval_s": 132.1}]}]}

An unknown key is refused: a misspelt one would otherwise be ignored.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from spotweave.documents import Number, Positive, StrictModel, checked, load
from spotweave.envs.simulation.bags.model import (
    KNOWN,
    Bag,
    BagError,
    Environment,
    Market,
    Mode,
    Task,
    Vm,
    VmType,
)
from spotweave.envs.simulation.bags.plan import Plan, PlannedTask, PlannedVm, require_possible

YesNo = Literal["yes", "no"]


class _Markets(StrictModel):
    on_demand: YesNo = Field(alias="on-demand")
    spot: YesNo


class _Burstable(StrictModel):
    burstable: YesNo
    cpu_credit_rate: Number
    baseline: Annotated[Number, Field(le=100)]


class _Instance(StrictModel):
    vcpu: Annotated[int, Field(ge=1)]
    memory: Positive
    markets: _Markets
    burstable: _Burstable
    prices: dict[Market, Positive] = Field(default_factory=dict)


class _Environment(StrictModel):
    instances: Annotated[dict[str, _Instance], Field(min_length=1)]


class _Task(StrictModel):
    command: str
    memory: Number
    runtime: dict[str, Positive]


class _Job(StrictModel):
    job_id: Annotated[int, Field(ge=0)]
    job_name: str
    description: str
    tasks: Annotated[dict[str, _Task], Field(min_length=1)]


class _Placed(StrictModel):
    task: str
    core: Annotated[int, Field(ge=0)]
    start_s: Number
    end_s: Positive
    checkpoint_interval_s: Positive | None = None


class _Vm(StrictModel):
    type: str
    market: Market
    number: Annotated[int, Field(ge=1)]
    mode: Mode
    tasks: tuple[_Placed, ...]


class _Map(StrictModel):
    job_id: int
    job_name: str
    planner: str
    deadline_s: Positive
    d_spot_s: Number
    makespan_s: Number
    cost_usd: Number
    vms: tuple[_Vm, ...]


def read_environment(path: Path) -> Environment:
    """Read and check an env.json; the parameters that it does not hold are the published ones.

    Raises:
        BagError: one line that names the file, the field, its value and what is expected.
    """
    return load(path, _environment, BagError)


def read_job(path: Path, environment: Environment) -> Bag:
    """Read and check a job.json for an environment. Raises as `read_environment`."""
    return load(path, lambda document: _bag(checked(_Job, document), environment), BagError)


def read_map(path: Path, bag: Bag, environment: Environment) -> Plan:
    """Read a map.json and check that it can be carried out. Raises as `read_environment`."""
    return load(path, lambda document: _plan(checked(_Map, document), bag, environment), BagError)


def plan_document(plan: Plan, planner: str) -> dict[str, Any]:
    """What `plan_of` reads back as the same plan, with its figures and the planner's name."""
    return {
        "job_id": plan.bag.id,
        "job_name": plan.bag.name,
        "planner": planner,
        "deadline_s": plan.deadline_s,
        "d_spot_s": plan.d_spot_s,
        "makespan_s": plan.makespan_s,
        "cost_usd": plan.cost_usd,
        "vms": [
            {
                "type": planned.vm.vm_type.name,
                "market": planned.vm.market,
                "number": planned.vm.number,
                "mode": planned.mode,
                "tasks": [_placed_document(placed) for placed in planned.tasks],
            }
            for planned in plan.vms
        ],
    }


def _placed_document(placed: PlannedTask) -> dict[str, Any]:
    document: dict[str, Any] = {
        "task": placed.task.name,
        "core": placed.core,
        "start_s": placed.start_s,
        "end_s": placed.end_s,
    }
    if placed.checkpoint_interval_s is not None:
        document["checkpoint_interval_s"] = placed.checkpoint_interval_s
    return document


def _environment(document: object) -> Environment:
    instances = checked(_Environment, document).instances
    return Environment(tuple(_vm_type(name, entry) for name, entry in instances.items()))


def _vm_type(name: str, entry: _Instance) -> VmType:
    burst = entry.burstable
    if burst.burstable == "yes" and not burst.baseline:
        raise BagError(f"instances.{name}.burstable.baseline is 0, expected a number > 0")
    offered = {Market.ON_DEMAND: entry.markets.on_demand, Market.SPOT: entry.markets.spot}
    prices = {market: _usd_hour(name, entry, market) for market, yes in offered.items() if yes == "yes"}
    return VmType(
        name,
        entry.vcpu,
        entry.memory,
        prices.get(Market.ON_DEMAND),
        prices.get(Market.SPOT),
        burst.burstable == "yes",
        burst.cpu_credit_rate,
        burst.baseline / 100,
    )


def _usd_hour(name: str, entry: _Instance, market: Market) -> float:
    if market in entry.prices:
        return entry.prices[market]
    if name in KNOWN and market in KNOWN[name].markets:
        return KNOWN[name].usd_hour(market)
    raise BagError(
        f'instances.{name}.prices lacks "{market}", which no table knows: give USD per hour, a number > 0'
    )


def _bag(job: _Job, environment: Environment) -> Bag:
    # A burstable VM takes only what others hand over, so that it does not count here.
    largest_mb = max((t.memory_mb for t in environment.types if not t.burstable), default=0.0)
    names = [vm_type.name for vm_type in environment.types]
    for name, task in job.tasks.items():
        if sorted(task.runtime) != sorted(names):
            given = ", ".join(task.runtime) or "none"
            raise BagError(
                f"tasks.{name}.runtime has {given}: expected seconds on each of {', '.join(names)}"
            )
        if task.memory > largest_mb:
            raise BagError(
                f"tasks.{name}.memory is {task.memory:g} MB, expected at most {largest_mb:g} MB, all that "
                f"the largest regular VM has"
            )
    tasks = (
        Task(name, task.command, task.memory, {vm: task.runtime[vm] for vm in names})
        for name, task in job.tasks.items()
    )
    return Bag(job.job_id, job.job_name, job.description, tuple(tasks))


def _plan(found: _Map, bag: Bag, environment: Environment) -> Plan:
    if found.job_id != bag.id:
        raise BagError(f"job_id is {found.job_id}, expected {bag.id}, which the job has")
    vms = tuple(_planned_vm(f"vms.{k}", vm, bag, environment) for k, vm in enumerate(found.vms))
    plan = Plan(bag, vms, found.deadline_s, found.d_spot_s, environment.allocation_cycle_s)
    return require_possible(plan, environment)


def _planned_vm(owner: str, found: _Vm, bag: Bag, environment: Environment) -> PlannedVm:
    types = {vm_type.name: vm_type for vm_type in environment.types}
    tasks = {task.name: task for task in bag.tasks}
    if found.type not in types:
        raise BagError(f"{owner}.type is {found.type!r}, expected one of {', '.join(types)}")
    vm_type = types[found.type]
    if found.mode == Mode.BASELINE and not vm_type.burstable:
        raise BagError(f"{owner}.mode is 'baseline', expected 'full': {vm_type.name} is not burstable")
    if found.market not in vm_type.markets:
        raise BagError(
            f"{owner}.market is {found.market!r}, which the environment does not offer for {vm_type.name}"
        )
    for placed in found.tasks:
        if placed.task not in tasks:
            raise BagError(f"{owner} runs task {placed.task!r}, which the job does not have")
    placed_tasks = (
        PlannedTask(tasks[one.task], one.core, one.start_s, one.end_s, one.checkpoint_interval_s)
        for one in found.tasks
    )
    return PlannedVm(Vm(vm_type, found.market, found.number), tuple(placed_tasks), found.mode)
