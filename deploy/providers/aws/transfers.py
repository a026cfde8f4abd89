"""What moving data between regions of AWS costs, by its price list."""

from __future__ import annotations

from deploy.model.transfers import Transfers
from deploy.providers.aws.config import AwsConfig


def transfers(config: AwsConfig) -> Transfers:
    """Of data in any region of the price list to those that may be rented in; AWS names no speeds.

    Raises:
        AwsConfigError: if the price list cannot be used.
    """
    listed = config.prices().regions
    return Transfers(
        regions=tuple(config.regions),
        usd_gb={
            (start, end): prices.egress.usd_gb[end]
            for start, prices in listed.items()
            for end in config.regions
            if end in prices.egress.usd_gb
        },
    )
