"""What a deployment rents: its providers, made from its configuration, and what would stop them."""

from __future__ import annotations

import importlib.util
from collections.abc import Collection, Iterable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from sqlalchemy import select

from deploy.config import ConfigError, DeploymentConfig
from deploy.model.transfers import Transfers
from deploy.objects.base import Objects
from deploy.objects.folder import FolderObjects
from deploy.objects.location import Bucket, parse
from deploy.providers.aws.config import AwsConfig, AwsConfigError
from deploy.providers.aws.names import places
from deploy.providers.aws.policies import Scope
from deploy.providers.aws.transfers import transfers
from deploy.providers.base import Provider, ProviderError
from deploy.providers.local.config import LocalConfigError
from deploy.providers.local.provider import LocalProvider
from deploy.security.sandbox import Sandbox
from deploy.store import migrate
from deploy.store.database import Database
from deploy.store.schema import deployment

if TYPE_CHECKING:
    from deploy.providers.aws.check import Finding
    from deploy.providers.aws.clients import Clients
    from deploy.store.instances import Instance

_NAMED = 5
"""Instances that a refusal names."""


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


def require_all_rented(config: DeploymentConfig, instances: Iterable[Instance]) -> None:
    """Refuse a configuration that would leave instances alone: nobody would look after them, or end them.

    Args:
        config: of the deployment.
        instances: that exist, or may, as the store has them.

    Raises:
        ConfigError: one line that names them, and where they are.
    """
    aws = config.aws_provider()
    kept: dict[str, Collection[str] | None] = {}
    if config.local is not None:
        # What it has started is in its state folder, whatever its regions are called now.
        kept["local"] = None
    if aws is not None:
        kept["aws"] = aws.regions
    left: dict[str, list[str]] = {}
    for one in instances:
        provider, region = one.offer.provider, one.offer.region
        regions = kept.get(provider, ())
        if regions is not None and region not in regions:
            left.setdefault(f"{provider} {region}", []).append(one.provider_id or one.instance_id)
    for where, names in left.items():
        shown = ", ".join(names[:_NAMED]) + (f" and {len(names) - _NAMED} more" if names[_NAMED:] else "")
        raise ConfigError(
            f"{where}: {shown} may run there, and the configuration does not have it any more: put it back "
            "until they have ended (spotweave cancel, spotweave clouds sweep)"
        )


def deployment_of(config: DeploymentConfig) -> str:
    """The id that tags all that a deployment rents; "" before it has a database. Raises StoreError."""
    database = Database(config.store_url)
    try:
        if database.path is not None and not database.path.exists():
            return ""
        with database.read() as connection:
            if migrate.current_version(connection) is None:
                return ""
            return str(connection.scalar(select(deployment.c.deployment_id)) or "")
    finally:
        database.close()


def policy_scope(config: DeploymentConfig, account: str | None, session: Any = None) -> Scope:
    """What a deployment's IAM policies are for. Its database must be there.

    Args:
        config: of the deployment.
        account: of AWS; None: that of the credentials, which AWS is asked for.
        session: of boto3; None: a new one.

    Raises:
        ConfigError: one line, if it does not rent from AWS, or AWS cannot be asked.
    """
    aws = _aws(config)
    if aws is None:
        raise ConfigError("this deployment rents nothing from AWS: there is nothing to allow")
    from boto3 import Session

    partition = (session or Session()).get_partition_for_region(next(iter(aws.regions)))
    if account is None:
        try:
            from deploy.providers.aws.errors import asking

            with asking("the account's number"):
                sts = _clients(config, session).get("sts", next(iter(aws.regions)))
                account = str(sts.get_caller_identity()["Account"])
        except ProviderError as error:
            raise ConfigError(f"{error} (or give it: --account)") from error
    flower, spark = (
        _bucket(place) for place in (config.runners.checkpoints.flower, config.runners.checkpoints.spark)
    )
    both = tuple(dict.fromkeys(one for one in (flower, spark) if one is not None))
    return Scope(aws, partition, account, deployment_of(config), both, (spark,) if spark is not None else ())


def _bucket(place: str | None) -> Bucket | None:
    found = parse(place) if place is not None and place.startswith("s3") else None
    return found if isinstance(found, Bucket) else None


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
            yield from check(aws, session, deployment=deployment_of(config) or "not-made-yet")
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
