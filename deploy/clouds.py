"""What a deployment rents: its providers, made from its configuration, and what would stop them."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from deploy.config import ConfigError, DeploymentConfig
from deploy.model.transfers import Transfers
from deploy.objects.base import Objects
from deploy.objects.folder import FolderObjects
from deploy.objects.location import Bucket, parse
from deploy.providers.aws.config import AwsConfig, AwsConfigError
from deploy.providers.aws.names import places
from deploy.providers.aws.transfers import transfers
from deploy.providers.base import Provider, ProviderError
from deploy.providers.local.config import LocalConfigError
from deploy.providers.local.provider import LocalProvider
from deploy.security.sandbox import Sandbox

if TYPE_CHECKING:
    from deploy.providers.aws.check import Finding
    from deploy.providers.aws.clients import Clients


def open_providers(
    config: DeploymentConfig, session: Any = None, sandbox: Sandbox | None = None
) -> dict[str, Provider]:
    """All providers of a deployment, by name. Nothing is rented, and nobody is asked yet.

    Args:
        config: of the deployment.
        session: of boto3, for AWS; None: a new one.
        sandbox: around what runs on instances that are this machine; None: none.

    Raises:
        ConfigError: one line, if one of them cannot be used.
    """
    with ExitStack() as opened:
        providers: list[Provider] = []
        try:
            local = config.local_provider()
            if local is not None:
                providers.append(LocalProvider(local, sandbox))
                opened.callback(providers[-1].close)
            aws = _aws(config)
            if aws is not None:
                from deploy.providers.aws.provider import AwsProvider

                providers.append(AwsProvider(aws, session))
        except (ProviderError, AwsConfigError) as error:
            raise ConfigError(str(error)) from error
        opened.pop_all()
        return {one.name: one for one in providers}


def open_checkpoints(config: DeploymentConfig, session: Any = None) -> Objects | None:
    """Where federated jobs keep their checkpoints besides this machine; None: nowhere. Nobody is asked yet.

    Args:
        config: of the deployment.
        session: of boto3, for S3; None: a new one.

    Raises:
        ConfigError: one line, if it cannot be used.
    """
    place = config.runners.checkpoints.flower
    if place is None:
        return None
    where = parse(place)
    if not isinstance(where, Bucket):
        return FolderObjects(where)
    clients = _clients(config, session)
    from deploy.objects.s3 import S3Objects

    return S3Objects(clients, where)


def count_offers(config: DeploymentConfig) -> dict[str, int]:
    """How many offers each provider has, by its name, from the configuration alone. Raises ConfigError."""
    counted = {}
    try:
        local, aws = config.local_provider(), _aws(config)
        if local is not None:
            local.recordings()
            counted["local"] = len(local.offers)
        if aws is not None:
            aws.prices()
            aws.ca_pem()
            counted["aws"] = len(places(aws))
    except (LocalConfigError, AwsConfigError) as error:
        raise ConfigError(str(error)) from error
    return counted


def findings(config: DeploymentConfig, session: Any = None) -> Iterator[Finding]:
    """What is right and what is missing at the clouds that a deployment rents from. Nothing is changed.

    Args:
        config: of the deployment.
        session: of boto3; None: a new one.

    Raises:
        ConfigError: one line, if a provider's configuration cannot be used.
    """
    aws = _aws(config)
    if aws is not None:
        from deploy.providers.aws.check import check

        try:
            yield from check(aws, session)
        except AwsConfigError as error:
            raise ConfigError(str(error)) from error
    place = config.runners.checkpoints.flower
    where = None if place is None else parse(place)
    if isinstance(where, Bucket):
        clients = _clients(config, session)
        from deploy.objects.checking import check_bucket

        yield from check_bucket(clients, where)


def missing(config: DeploymentConfig, session: Any = None) -> str:
    """What would stop a launch, in one line; "" if nothing would. See `findings`."""
    found = [one for one in findings(config, session) if one.verdict == "missing"]
    if not found:
        return ""
    more = f" (and {len(found) - 1} more: spotweave clouds check)" if len(found) > 1 else ""
    return f"{line(found[0])}{more}"


def line(found: Finding) -> str:
    """A finding for people: what it is about, once, and what is so."""
    return f"aws {found.what}: {found.text.removeprefix('aws: ').removeprefix(f'{found.what}: ')}"


def _clients(config: DeploymentConfig, session: Any) -> Clients:
    """For S3, as the AWS provider's where there is one. Raises ConfigError."""
    if importlib.util.find_spec("boto3") is None:
        raise ConfigError("checkpoints in S3 need boto3: pip install 'spotweave[deploy,aws]'")
    from deploy.providers.aws.clients import Clients

    aws = _aws(config)
    try:
        return Clients(aws.profile if aws else None, aws.endpoint_url if aws else None, session)
    except ProviderError as error:
        raise ConfigError(str(error)) from error


def transfers_of(config: DeploymentConfig) -> Transfers:
    """What moving data between the clouds' regions takes. Raises ConfigError."""
    aws = _aws(config)
    try:
        return Transfers() if aws is None else transfers(aws)
    except AwsConfigError as error:
        raise ConfigError(str(error)) from error


def _aws(config: DeploymentConfig) -> AwsConfig | None:
    found = config.aws_provider()
    if found is not None and importlib.util.find_spec("boto3") is None:
        raise ConfigError("a deployment with aws needs boto3: pip install 'spotweave[deploy,aws]'")
    return found
