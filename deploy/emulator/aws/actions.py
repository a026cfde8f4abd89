"""Instances, disks and their tags: the actions that change what runs."""

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
from deploy.emulator.records import Volume

_Params = dict[str, Any]
_Answer = dict[str, Any]
_OURS = ("i-", "sir-", "vol-")


class InstanceActions:
    """The actions by service and name: `table[service, action](region, params)`. Hold the world's lock."""

    def __init__(self, world: Ec2World, account: Account) -> None:
        self._world, self._account = world, account
        self._launcher = Launcher(world, account)
        self._reservations = Reservations()
        self.table: dict[tuple[str, str], Callable[[str, _Params], _Answer]] = {
            ("ec2", "RunInstances"): self._run_instances,
            ("ec2", "CreateFleet"): self._launcher.create_fleet,
            ("ec2", "DescribeInstances"): self._describe_instances,
            ("ec2", "DescribeInstanceStatus"): self._describe_instance_status,
            ("ec2", "TerminateInstances"): self._terminate_instances,
            ("ec2", "StopInstances"): self._stop_instances,
            ("ec2", "StartInstances"): self._start_instances,
            ("ec2", "DescribeVolumes"): self._describe_volumes,
            ("ec2", "DeleteVolume"): self._delete_volume,
            ("ec2", "CreateTags"): self._create_tags,
            ("ec2", "DeleteTags"): self._delete_tags,
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

    def _describe_instance_status(self, region: str, params: _Params) -> _Answer:
        ids = params.get("InstanceIds", [])
        found = self._visible(region, ids) if ids else self._world.described(region)
        if not params.get("IncludeAllInstances"):
            found = [one for one in found if one.state == "running"]
        part, token = page(describing.instances(found, params.get("Filters", [])), params, 1000)
        return {
            "InstanceStatuses": [
                {
                    "InstanceId": one.instance_id,
                    "AvailabilityZone": one.pool.zone,
                    "InstanceState": state(one.state),
                    "InstanceStatus": {"Status": "ok" if one.state == "running" else "not-applicable"},
                    "SystemStatus": {"Status": "ok" if one.state == "running" else "not-applicable"},
                }
                for one in part
            ],
            "NextToken": token,
        }

    def _terminate_instances(self, region: str, params: _Params) -> _Answer:
        return {"TerminatingInstances": self._change(region, params, self._world.terminate)}

    def _stop_instances(self, region: str, params: _Params) -> _Answer:
        for one in self._visible(region, params["InstanceIds"]):
            if one.request is not None and not one.request.persistent:
                raise AwsError(
                    "UnsupportedOperation",
                    f"You can't stop the Spot Instance '{one.instance_id}' because it is associated with a "
                    "one-time Spot Instance request. You can only stop Spot Instances associated with "
                    "persistent Spot Instance requests.",
                )
            if params.get("Hibernate") and not one.hibernates:
                raise AwsError(
                    "UnsupportedHibernationConfiguration",
                    f"The instance '{one.instance_id}' was not launched with hibernation configured.",
                )
            _expect(one, "pending", "running", "stopping", "stopped")
        return {"StoppingInstances": self._change(region, params, self._world.stop)}

    def _start_instances(self, region: str, params: _Params) -> _Answer:
        for one in self._visible(region, params["InstanceIds"]):
            _expect(one, "stopped", "pending", "running")
            pool = one.pool
            room = pool.spot_capacity if one.spot else pool.on_demand_capacity
            refused = one.spot and not self._world.market.has_spot(pool, self._world.clock.now())
            if one.state == "stopped" and (refused or self._world.used(pool, spot=one.spot) >= room):
                raise AwsError(
                    "InsufficientInstanceCapacity",
                    f"We currently do not have sufficient {pool.instance_type} capacity in {pool.zone}.",
                    500,
                )

        def start(one: Ec2Instance) -> None:
            if one.state == "stopped":
                self._world.start(one)

        return {"StartingInstances": self._change(region, params, start)}

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

    # Disks and tags.

    def _volumes(self, region: str) -> list[Volume]:
        return [
            disk
            for one in self._world.instances.values()
            if one.region == region
            for disk in one.volumes
            if disk.deleted_s is None
        ]

    def _describe_volumes(self, region: str, params: _Params) -> _Answer:
        found, ids = self._volumes(region), params.get("VolumeIds", [])
        absent = sorted(set(ids) - {disk.volume_id for disk in found})
        if absent:
            raise AwsError("InvalidVolume.NotFound", f"The volume '{absent[0]}' does not exist.")
        chosen = [disk for disk in found if not ids or disk.volume_id in ids]
        part, token = page(describing.volumes(chosen, params.get("Filters", [])), params, 1000)
        return {"Volumes": [describing.volume(disk) for disk in part], "NextToken": token}

    def _delete_volume(self, region: str, params: _Params) -> _Answer:
        name = params["VolumeId"]
        for disk in self._volumes(region):
            if disk.volume_id == name:
                if disk.instance_id is not None:
                    raise AwsError(
                        "VolumeInUse", f"Volume {name} is currently attached to {disk.instance_id}"
                    )
                refuse_dry_run(params)
                disk.deleted_s = self._world.now_s()
                return {}
        raise AwsError("InvalidVolume.NotFound", f"The volume '{name}' does not exist.")

    def _create_tags(self, region: str, params: _Params) -> _Answer:
        tags = {tag["Key"]: tag.get("Value", "") for tag in params["Tags"]}
        refuse_dry_run(params)
        theirs = self._of_moto(params)
        if theirs:
            self._account.ec2(region).create_tags(theirs, tags)
        for found in self._tagged(region, params):
            found.update(tags)
        return {}

    def _delete_tags(self, region: str, params: _Params) -> _Answer:
        refuse_dry_run(params)
        theirs = self._of_moto(params)
        wanted = {tag["Key"]: tag.get("Value") for tag in params.get("Tags", [])}
        if theirs:
            self._account.ec2(region).delete_tags(theirs, wanted)
        for found in self._tagged(region, params):
            for key in list(found):
                if not wanted or (key in wanted and wanted[key] in (None, found[key])):
                    del found[key]
        return {}

    def _of_moto(self, params: _Params) -> list[str]:
        return [name for name in params["Resources"] if not name.startswith(_OURS)]

    def _tagged(self, region: str, params: _Params) -> list[dict[str, str]]:
        """The tags of our own resources. Raises AwsError if one is not there."""
        known: dict[str, dict[str, str]] = {}
        for one in self._world.described(region):
            known[one.instance_id] = one.tags
            if one.request is not None:
                known[one.request.request_id] = one.request.tags
        known |= {disk.volume_id: disk.tags for disk in self._volumes(region)}
        ours = [name for name in params["Resources"] if name.startswith(_OURS)]
        for name in ours:
            if name not in known:
                raise not_found([name]) if name.startswith("i-") else describing.missing("ID", [name])
        return [known[name] for name in ours]


def _expect(one: Ec2Instance, *states: str) -> None:
    if one.state not in states:
        raise AwsError(
            "IncorrectInstanceState",
            f"The instance '{one.instance_id}' is not in a state from which this can be done ({one.state}).",
        )
