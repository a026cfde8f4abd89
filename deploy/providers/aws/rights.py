"""Whether the scheduler's identity is allowed what it must be."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from deploy.providers.aws.errors import aws_errors

_ASSUMED = re.compile(r"arn:(aws[a-z-]*):sts::(\d+):assumed-role/([^/]+)/.*")


def simulated(iam: Any, identity: str, actions: Sequence[str], resource: str = "*") -> list[str]:
    """Those of some actions that the identity's policies do not allow.

    Args:
        iam: client.
        identity: ARN, as sts:GetCallerIdentity gives it.
        actions: such as "ec2:RunInstances".
        resource: ARN of what they are done to.

    Raises:
        ProviderError: if it cannot be simulated.
    """
    with aws_errors("permissions"):
        # Conditions on tags are not met by a request without tags: that is no denial.
        pages = iam.get_paginator("simulate_principal_policy").paginate(
            PolicySourceArn=role_of(identity), ActionNames=list(actions), ResourceArns=[resource]
        )
        return [
            result["EvalActionName"]
            for page in pages
            for result in page["EvaluationResults"]
            if result["EvalDecision"] == "explicitDeny"
            or (result["EvalDecision"] == "implicitDeny" and not result.get("MissingContextValues"))
        ]


def role_of(identity: str) -> str:
    """The role behind the ARN of a session; other ARNs as they are."""
    found = _ASSUMED.fullmatch(identity)
    return f"arn:{found[1]}:iam::{found[2]}:role/{found[3]}" if found else identity
