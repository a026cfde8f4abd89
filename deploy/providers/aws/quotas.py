"""The account's vCPU quotas: which one a type and a market count against."""

from __future__ import annotations

from typing import Any

from deploy.providers.aws.config import AwsMarket

_CODES: dict[tuple[AwsMarket, str], str] = {
    ("spot", "standard"): "L-34B43A08",
    ("on_demand", "standard"): "L-1216C47A",
    ("spot", "g"): "L-3819A6DF",
    ("on_demand", "g"): "L-DB2E81BA",
    ("spot", "p"): "L-7212CCBC",
    ("on_demand", "p"): "L-417A185B",
}
"""From the console's page of EC2 quotas: standard families, G and VT, P2 to P4."""
_STANDARD = frozenset("acdhimrtz")


def quota_code(instance_type: str, market: AwsMarket) -> str | None:
    """Code of the quota; None for families that this list does not know."""
    family = instance_type.partition(".")[0]
    if family.startswith(("g", "vt")):
        return _CODES[market, "g"]
    if family.startswith(("p2", "p3", "p4")):
        return _CODES[market, "p"]
    if family[0] in _STANDARD and not family.startswith(("inf", "trn", "dl", "hpc", "mac")):
        return _CODES[market, "standard"]
    return None


def vcpus_allowed(client: Any, code: str) -> float:
    """The quota's value now."""
    value = client.get_service_quota(ServiceCode="ec2", QuotaCode=code)["Quota"]["Value"]
    return float(value)
