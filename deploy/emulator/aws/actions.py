"""Instances: the actions that change and show what runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from deploy.emulator.aws import describing
from deploy.emulator.aws.account import Account
from deploy.emulator.aws.describing import Reservations, page, state
from deploy.emulator.aws.errors import AwsError, not_found, refuse_dry_run
from deploy.emulator.aws.launching import Launcher
from deploy.emulator.aws.records import Ec2Instance
from deploy.emulator.aws.world import Ec2World

_Params = dict[str, Any]
_Answer = dict[str, Any]


class InstanceActions:
    """The actions by service and name: `table[service, action](region, params)`. Hold the world's lock."""

    def __init__(self, world: Ec2World, account: Account) -> None:
        self._world, self._account = world, account
        self._launcher = Launcher(world, account)
        self._reservations = Reservations()
        self.table: dict[tuple[str, str], Callable[[str, _Params], _Answer]] = {
            ("ec2", "RunInstances"): self._run_instances,
            ("ec2", "DescribeInstances"): self._describe_instances,
            ("ec2", "TerminateInstances"): self._terminate_instances,
        }

    def _run_instances(self, region: str, params: _Params) -> _Answer:
        made = self._launcher.run_instances(region, params)
        return self._reservations.of(made)[0]

    def _describe_instances(self, region: str, params: _Params) -> _Answer:
        ids = params.get("InstanceIds", [])
        if ids and "MaxResults" in params:
            raise AwsError(
                "InvalidParameterCombination",
                "The parameter instancesSet cannot be used with the parameter maxResults",
            )
        refuse_dry_run(params)
        found = self._visible(region, ids) if ids else self._world.described(region)
        chosen = describing.instances(found, params.get("Filters", []))
        part, token = page(chosen, params, len(chosen) or 1)
        return {"Reservations": self._reservations.of(part), "NextToken": token}

    def _terminate_instances(self, region: str, params: _Params) -> _Answer:
        return {"TerminatingInstances": self._change(region, params, self._world.terminate)}

    def _change(
        self, region: str, params: _Params, act: Callable[[Ec2Instance], None]
    ) -> list[dict[str, Any]]:
        found = self._visible(region, params.get("InstanceIds", []))
        if not found:
            raise AwsError("MissingParameter", "The request must contain the parameter InstanceId")
        refuse_dry_run(params)
        answer = []
        for one in found:
            before = one.state
            act(one)
            answer.append(
                {
                    "InstanceId": one.instance_id,
                    "CurrentState": state(one.state),
                    "PreviousState": state(before),
                }
            )
        return answer

    def _visible(self, region: str, ids: list[str]) -> list[Ec2Instance]:
        known = {one.instance_id: one for one in self._world.described(region)}
        absent = [name for name in ids if name not in known]
        if absent:
            raise not_found(absent)
        return [known[name] for name in ids]
