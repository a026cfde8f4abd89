"""Errors as AWS answers them."""

from __future__ import annotations

from collections.abc import Mapping


class AwsError(Exception):
    """A refusal.

    Attributes:
        code: as in the service's documentation.
        message: for a person.
        status: of the HTTP answer.
    """

    def __init__(self, code: str, message: str, status: int = 400) -> None:
        super().__init__(f"{code}: {message}")
        self.code, self.message, self.status = code, message, status


def invalid(message: str) -> AwsError:
    """A parameter's value."""
    return AwsError("InvalidParameterValue", message)


def not_found(instance_ids: list[str]) -> AwsError:
    """Instances that do not exist, or are not known yet."""
    several = len(instance_ids) > 1
    return AwsError(
        "InvalidInstanceID.NotFound",
        f"The instance ID{'s' if several else ''} '{', '.join(instance_ids)}' "
        f"do{'' if several else 'es'} not exist",
    )


def refuse_dry_run(params: Mapping[str, object]) -> None:
    """What would have succeeded is refused where only that was asked. Raises AwsError."""
    if params.get("DryRun"):
        raise AwsError("DryRunOperation", "Request would have succeeded, but DryRun flag is set.", 412)
