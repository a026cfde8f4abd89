"""Errors as AWS answers them."""

from __future__ import annotations

from collections.abc import Mapping

from deploy.emulator.errors import CloudError


class AwsError(CloudError):
    """A refusal of AWS."""


class AwsFailures:
    """How AWS says what goes wrong on demand; see `deploy.emulator.faults.Failures`."""

    def throttled(self, service: str) -> AwsError:
        """Too many requests."""
        code = {"ec2": "RequestLimitExceeded", "s3": "SlowDown"}.get(service, "ThrottlingException")
        return AwsError(code, "Request limit exceeded.", 503 if service in ("ec2", "s3") else 400)

    def failed(self, service: str, *, internal: bool) -> AwsError:
        """Its own fault."""
        if internal:
            return AwsError("InternalError", "An internal error has occurred", 500)
        code = {"ec2": "Unavailable", "s3": "ServiceUnavailable"}.get(service, "ServiceUnavailable")
        return AwsError(code, "The server is overloaded and can't handle the request.", 503)

    def coded(self, code: str) -> AwsError:
        """A code that a configuration names."""
        return AwsError(code, "It is so for a while.", 503 if code in _THEIR_FAULT else 400)


_THEIR_FAULT = ("InternalError", "RequestLimitExceeded", "ServiceUnavailable", "Unavailable")


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
