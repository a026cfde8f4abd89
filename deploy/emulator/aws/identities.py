"""What the caller may do, as IAM's policy simulator tells it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from typing import Any

from deploy.emulator.aws.wire import REQUEST_ID


def allowed(denied: Sequence[str], permission: str) -> bool:
    """Whether no pattern of the configuration denies it."""
    return not any(fnmatchcase(permission, pattern) for pattern in denied)


class IdentityActions:
    """The actions by service and name. They answer `{"xml": text}`: IAM speaks XML of its own."""

    def __init__(self, denied: Sequence[str]) -> None:
        self._denied = denied
        self.table: dict[tuple[str, str], Callable[[str, dict[str, Any]], dict[str, Any]]] = {
            ("iam", "SimulatePrincipalPolicy"): self._simulate
        }

    def _simulate(self, region: str, params: dict[str, Any]) -> dict[str, Any]:
        asked = [value for key, value in params.items() if key.startswith("ActionNames.member.")]
        results = "".join(
            f"<member><EvalActionName>{name}</EvalActionName><EvalResourceName>*</EvalResourceName>"
            f"<EvalDecision>{'allowed' if allowed(self._denied, name) else 'implicitDeny'}</EvalDecision>"
            "<MatchedStatements/><MissingContextValues/></member>"
            for name in asked
        )
        return {
            "xml": '<SimulatePrincipalPolicyResponse xmlns="https://iam.amazonaws.com/doc/2010-05-08/">'
            f"<SimulatePrincipalPolicyResult><EvaluationResults>{results}</EvaluationResults>"
            "<IsTruncated>false</IsTruncated></SimulatePrincipalPolicyResult>"
            f"<ResponseMetadata><RequestId>{REQUEST_ID}</RequestId></ResponseMetadata>"
            "</SimulatePrincipalPolicyResponse>"
        }
