"""Ending instances, in batches."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from deploy.providers.aws import names
from deploy.providers.aws.clients import Clients
from deploy.providers.aws.errors import aws_errors, code_of
from deploy.providers.base import ProviderError

_BATCH = 500
_ID = re.compile(r"\bi-[0-9a-f]+\b")
_NEVER_WAS = ("InvalidInstanceID.NotFound", "InvalidInstanceID.Malformed")


def terminate(clients: Clients, region: str, ids: Sequence[str], is_new: Callable[[str], bool]) -> None:
    """End instances; those that EC2 does not know are no error, unless they were rented only just now.

    Args:
        clients: to ask with.
        region: of all of them.
        ids: instance ids.
        is_new: whether EC2 may not know an instance yet.

    Raises:
        ProviderError: if EC2 cannot be asked now, or does not know a new instance yet.
    """
    doing = f"aws {region}: end of instances"
    for batch in names.batches(ids, _BATCH):
        left = list(batch)
        while left:
            try:
                with aws_errors(doing):
                    clients.get("ec2", region).terminate_instances(InstanceIds=left)
                break
            except ProviderError as error:
                cause = error.__cause__
                if not isinstance(cause, Exception) or code_of(cause) not in _NEVER_WAS:
                    raise
                # One unknown id refuses the whole batch.
                unknown = set(_ID.findall(str(cause))) & set(left) or set(left[:1])
                hidden = sorted(name for name in unknown if is_new(name))
                if hidden:
                    raise ProviderError(f"{doing}: {hidden[0]} is not visible yet: try again") from error
                left = [name for name in left if name not in unknown]
