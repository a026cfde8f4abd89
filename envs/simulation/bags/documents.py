"""job.json, env.json and map.json: reading, checking and writing them. Standard library only.

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

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from envs.simulation.bags.fields import (
    is_yes,
    read_json,
    require_list,
    require_named,
    require_number,
    require_object,
    require_one_of,
    require_text,
    require_whole,
    yes_no,
)
from envs.simulation.bags.model import KNOWN, Bag, BagError, Environment, Market, Mode, Task, Vm, VmType
from envs.simulation.bags.plan import Plan, PlannedTask, PlannedVm, require_possible


def read_environment(path: Path) -> Environment:
    """Read and check an env.json; the parameters that it does not hold are the published ones.

    Raises:
        BagError: one line that names the file, the field, its value and what is expected.
    """
    return read_json(path, environment_of)


def read_job(path: Path, environment: Environment) -> Bag:
    """Read and check a job.json for an environment. Raises as `read_environment`."""
    return read_json(path, lambda document: bag_of(document, environment))


def read_map(path: Path, bag: Bag, environment: Environment) -> Plan:
    """Read a map.json and check that it can be carried out. Raises as `read_environment`."""
    return read_json(path, lambda document: plan_of(document, bag, environment))


def environment_of(document: object) -> Environment:
    """The environment that a parsed env.json describes. Raises BagError."""
    top = require_object("the environment", document, ("instances",))
    instances = require_named("instances", top["instances"])
    return Environment(tuple(_vm_type(name, entry) for name, entry in instances.items()))


def bag_of(document: object, environment: Environment) -> Bag:
    """The bag that a parsed job.json describes. Raises BagError."""
    top = require_object("the job", document, ("job_id", "job_name", "description", "tasks"))
    tasks = require_named("tasks", top["tasks"])
    return Bag(
        require_whole("job_id", top["job_id"], least=0),
        require_text("job_name", top["job_name"]),
        require_text("description", top["description"]),
        tuple(_task(name, entry, environment) for name, entry in tasks.items()),
    )


def plan_of(document: object, bag: Bag, environment: Environment) -> Plan:
    """The plan that a parsed map.json describes. Raises BagError where it cannot be carried out."""
    keys = ("job_id", "job_name", "planner", "deadline_s", "d_spot_s", "makespan_s", "cost_usd", "vms")
    top = require_object("the map", document, keys)
    if top["job_id"] != bag.id:
        raise BagError(f"job_id is {top['job_id']!r}, expected {bag.id}, which the job has")
    tasks = {task.name: task for task in bag.tasks}
    types = {vm_type.name: vm_type for vm_type in environment.types}
    plan = Plan(
        bag,
        tuple(
            _planned_vm(f"vms[{k}]", entry, types, tasks) for k, entry in enumerate(require_list(top, "vms"))
        ),
        require_number("deadline_s", top["deadline_s"], above=0),
        require_number("d_spot_s", top["d_spot_s"]),
        environment.allocation_cycle_s,
    )
    return require_possible(plan, environment)


def environment_document(environment: Environment) -> dict[str, Any]:
    """What `environment_of` reads back as the same VM types."""
    return {
        "instances": {
            vm_type.name: {
                "vcpu": vm_type.vcpus,
                "memory": vm_type.memory_gb,
                "markets": {market: yes_no(market in vm_type.markets) for market in Market},
                "burstable": {
                    "burstable": yes_no(vm_type.burstable),
                    "cpu_credit_rate": vm_type.cpu_credit_rate_hour,
                    "baseline": 100 * vm_type.baseline,
                },
                "prices": {market: vm_type.usd_hour(market) for market in vm_type.markets},
            }
            for vm_type in environment.types
        }
    }


def bag_document(bag: Bag) -> dict[str, Any]:
    """What `bag_of` reads back as the same bag."""
    return {
        "job_id": bag.id,
        "job_name": bag.name,
        "description": bag.description,
        "tasks": {
            task.name: {
                "command": task.command,
                "memory": task.memory_mb,
                "runtime": dict(task.runtime_s),
            }
            for task in bag.tasks
        },
    }


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


def _vm_type(name: str, entry: object) -> VmType:
    owner = f"instances.{name}"
    fields = require_object(owner, entry, ("vcpu", "memory", "markets", "burstable"), ("prices",))
    markets = require_object(f"{owner}.markets", fields["markets"], tuple(Market))
    offered = {market: is_yes(f"{owner}.markets.{market}", markets[market]) for market in Market}
    burst = require_object(
        f"{owner}.burstable", fields["burstable"], ("burstable", "cpu_credit_rate", "baseline")
    )
    burstable = is_yes(f"{owner}.burstable.burstable", burst["burstable"])
    baseline = require_number(
        f"{owner}.burstable.baseline", burst["baseline"], above=0 if burstable else None
    )
    if baseline > 100:
        raise BagError(f"{owner}.burstable.baseline is {baseline:g}, expected percent, at most 100")
    prices = _prices(name, fields.get("prices"), [market for market in Market if offered[market]])
    return VmType(
        name,
        require_whole(f"{owner}.vcpu", fields["vcpu"], least=1),
        require_number(f"{owner}.memory", fields["memory"], above=0),
        prices.get(Market.ON_DEMAND),
        prices.get(Market.SPOT),
        burstable,
        require_number(f"{owner}.burstable.cpu_credit_rate", burst["cpu_credit_rate"]),
        baseline / 100,
    )


def _prices(name: str, given: object, markets: Iterable[Market]) -> dict[Market, float]:
    """USD per hour on each of the markets."""
    owner = f"instances.{name}.prices"
    entry = {} if given is None else require_object(owner, given, (), tuple(Market))
    prices = {}
    for market in markets:
        known = market in KNOWN[name].markets if name in KNOWN else False
        if market in entry:
            prices[market] = require_number(f"{owner}.{market}", entry[market], above=0)
        elif known:
            prices[market] = KNOWN[name].usd_hour(market)
        else:
            raise BagError(f'{owner} lacks "{market}", which no table knows: give USD per hour, a number > 0')
    return prices


def _task(name: str, entry: object, environment: Environment) -> Task:
    owner = f"tasks.{name}"
    fields = require_object(owner, entry, ("command", "memory", "runtime"))
    names = tuple(vm_type.name for vm_type in environment.types)
    runtimes = require_object(f"{owner}.runtime", fields["runtime"], names)
    memory_mb = require_number(f"{owner}.memory", fields["memory"])
    # A burstable VM takes only what others hand over, so that it does not count here.
    largest_mb = max((t.memory_mb for t in environment.types if not t.burstable), default=0.0)
    if memory_mb > largest_mb:
        raise BagError(
            f"{owner}.memory is {memory_mb:g} MB, expected at most {largest_mb:g} MB, all that the "
            f"largest regular VM has"
        )
    runtime_s = {key: require_number(f"{owner}.runtime.{key}", runtimes[key], above=0) for key in names}
    return Task(name, require_text(f"{owner}.command", fields["command"]), memory_mb, runtime_s)


def _planned_vm(
    owner: str, entry: object, types: Mapping[str, VmType], tasks: Mapping[str, Task]
) -> PlannedVm:
    fields = require_object(owner, entry, ("type", "market", "number", "mode", "tasks"))
    vm_type = types[require_one_of(f"{owner}.type", fields["type"], types)]
    market = Market(require_one_of(f"{owner}.market", fields["market"], tuple(Market)))
    mode = Mode(require_one_of(f"{owner}.mode", fields["mode"], tuple(Mode)))
    if mode == Mode.BASELINE and not vm_type.burstable:
        raise BagError(f"{owner}.mode is 'baseline', expected 'full': {vm_type.name} is not burstable")
    vm = Vm(vm_type, market, require_whole(f"{owner}.number", fields["number"], least=1))
    if market not in vm_type.markets:
        raise BagError(
            f"{owner}.market is {market!r}, which the environment does not offer for {vm_type.name}"
        )
    placed = []
    for k, item in enumerate(require_list(fields, "tasks")):
        of = f"{owner}.tasks[{k}]"
        place = require_object(of, item, ("task", "core", "start_s", "end_s"), ("checkpoint_interval_s",))
        interval = place.get("checkpoint_interval_s")
        placed.append(
            PlannedTask(
                tasks[require_one_of(f"{of}.task", place["task"], tasks)],
                require_whole(f"{of}.core", place["core"], least=0),
                require_number(f"{of}.start_s", place["start_s"]),
                require_number(f"{of}.end_s", place["end_s"], above=0),
                None
                if interval is None
                else require_number(f"{of}.checkpoint_interval_s", interval, above=0),
            )
        )
    return PlannedVm(vm, tuple(placed), mode)
