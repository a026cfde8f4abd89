"""What a deployment rents: its providers, made from its configuration, and what would stop them."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING

from sqlalchemy import select

from spotweave.deploy.billing import Transfers
from spotweave.deploy.config import DeploymentConfig
from spotweave.deploy.objects.location import Bucket, FolderObjects, Objects, parse
from spotweave.deploy.providers.aws.config import AwsConfig
from spotweave.deploy.providers.aws.policies import Scope
from spotweave.deploy.providers.base import Provider, ProviderError
from spotweave.deploy.providers.config import Finding
from spotweave.deploy.providers.gcp.config import GcpConfig
from spotweave.deploy.security.sandbox import Sandbox
from spotweave.deploy.store import migrate
from spotweave.deploy.store.database import Database
from spotweave.deploy.store.schema import deployment
from spotweave.deploy.yamlfile import ConfigError
from spotweave.mistakes import some_of

if TYPE_CHECKING:
    from spotweave.deploy.providers.aws.clients import Clients
    from spotweave.deploy.providers.gcp.clients import Clients as GcpClients
    from spotweave.deploy.store.instances import Instance

_NAMED = 5  # instances that a refusal names


def open_providers(config: DeploymentConfig, sandbox: Sandbox | None = None) -> dict[str, Provider]:
    """All providers of a deployment, by name. Nothing is rented, and nothing is asked yet.

    `sandbox` is around what runs on instances that are this machine. Raises ConfigError (one line) if one of
    them cannot be used.
    """
    found: dict[str, Provider] = {}
    with ExitStack() as opened:
        for name, one in config.rented().items():
            try:
                found[name] = one.open(sandbox)
            except ProviderError as error:
                raise ConfigError(str(error)) from error
            opened.callback(found[name].close)
            if found[name].name != name:
                raise ConfigError(f"provider {name} calls itself {found[name].name}: the two must be equal")
        opened.pop_all()
    return found


def open_checkpoints(config: DeploymentConfig) -> Objects | None:
    """Open the store of checkpoints of federated jobs and bags outside this machine; None: there is none.

    Raises ConfigError (one line) if it cannot be used.
    """
    place = config.runners.checkpoints.flower
    if place is None:
        return None
    where = parse(place)
    if not isinstance(where, Bucket):
        return FolderObjects(where)
    if where.scheme == "gs":
        gcp_clients = _gcp_clients(config)
        from spotweave.deploy.objects.gcs import GcsObjects

        return GcsObjects(gcp_clients, where)
    clients = _clients(config)
    from spotweave.deploy.objects.s3 import S3Objects

    return S3Objects(clients, where)


def count_offers(config: DeploymentConfig) -> dict[str, int]:
    """How many offers each provider has, by its name, from the configuration alone. Raises ConfigError."""
    return {name: len(one.places()) for name, one in config.rented().items()}


def require_all_rented(config: DeploymentConfig, instances: Iterable[Instance]) -> None:
    """Refuse a configuration that would leave instances alone: nobody would look after them, or end them.

    Raises ConfigError: one line that names them, and where they are.
    """
    rented = config.rented()
    left: dict[str, list[str]] = {}
    for one in instances:
        provider, region = one.offer.provider, one.offer.region
        if provider not in rented or not rented[provider].looks_after(region):
            left.setdefault(f"{provider} {region}", []).append(one.provider_id or one.instance_id)
    for where, names in left.items():
        raise ConfigError(
            f"{where}: {some_of(names, _NAMED)} may run there, and the configuration does not have it any "
            "more: put it back until they have ended (spotweave cancel, spotweave clouds sweep)"
        )


def deployment_of(config: DeploymentConfig) -> str:
    """The id that tags all that a deployment rents; "" before it has a database. Raises StoreError."""
    with closing(Database(config.store_url)) as database:
        if database.missing:
            return ""
        with database.read() as connection:
            if migrate.current_version(connection) is None:
                return ""
            return str(connection.scalar(select(deployment.c.deployment_id)) or "")


def policy_scope(config: DeploymentConfig, account: str | None) -> Scope:
    """What a deployment's IAM policies are for. Its database must be there.

    `account` None: that of the credentials, which AWS is asked for. Raises ConfigError (one line) if it does
    not rent from AWS, or AWS cannot be asked.
    """
    aws = _aws(config)
    if aws is None:
        raise ConfigError("this deployment rents nothing from AWS: there is nothing to allow")
    from boto3 import Session

    partition = Session().get_partition_for_region(next(iter(aws.regions)))
    if account is None:
        try:
            from spotweave.deploy.providers.aws.clients import aws_errors

            with aws_errors("the account's number"):
                sts = _clients(config).get("sts", next(iter(aws.regions)))
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


def findings(config: DeploymentConfig) -> Iterator[tuple[str, Finding]]:
    """What is right and what is missing where a deployment rents and keeps checkpoints. Nothing is changed.

    Yields:
        The provider's name, and a finding.

    Raises:
        ConfigError: one line, if a provider's configuration cannot be used.
    """
    for name, one in config.rented().items():
        for finding in one.check(deployment_of(config)):
            yield name, finding
    place = config.runners.checkpoints.flower
    where = None if place is None else parse(place)
    if not isinstance(where, Bucket):
        return
    if where.scheme == "gs":
        gcp_clients = _gcp_clients(config)
        from spotweave.deploy.objects.gcs import check_bucket as check_gcs_bucket

        for finding in check_gcs_bucket(gcp_clients, where):
            yield "gcp", finding
        return
    clients = _clients(config)
    from spotweave.deploy.objects.s3 import check_bucket

    for finding in check_bucket(clients, where):
        yield "aws", finding


def missing(config: DeploymentConfig) -> str:
    """What would stop a launch, in one line; "" if nothing would. See `findings`."""
    found = [one for one in findings(config) if one[1].verdict == "missing"]
    if not found:
        return ""
    more = f" (and {len(found) - 1} more: spotweave clouds check)" if len(found) > 1 else ""
    return f"{line(*found[0])}{more}"


def line(provider: str, found: Finding) -> str:
    """A finding for people: what it is about, once, and what is so."""
    text = found.text.removeprefix(f"{provider}: ").removeprefix(f"{found.what}: ")
    return f"{provider} {found.what}: {text}"


def _clients(config: DeploymentConfig) -> Clients:
    """For S3, as the AWS provider's where there is one. Raises ConfigError."""
    if importlib.util.find_spec("boto3") is None:
        raise ConfigError("checkpoints in S3 need boto3: pip install 'spotweave[deploy,aws]'")
    from spotweave.deploy.providers.aws.clients import Clients

    aws = _aws(config)
    try:
        return Clients(aws.profile if aws else None, aws.endpoint_url if aws else None)
    except ProviderError as error:
        raise ConfigError(str(error)) from error


def _gcp_clients(config: DeploymentConfig) -> GcpClients:
    """For Cloud Storage, as the Google Cloud provider's where there is one. Raises ConfigError."""
    try:
        importlib.import_module("google.cloud.storage")
        importlib.import_module("google.cloud.compute_v1")
    except ImportError as error:
        raise ConfigError(
            "checkpoints in Cloud Storage need google-cloud-storage: pip install 'spotweave[deploy,gcp]'"
        ) from error
    from spotweave.deploy.providers.gcp.clients import Clients as GcpClients

    gcp = config.rented().get("gcp")
    return GcpClients(gcp.endpoint_url if isinstance(gcp, GcpConfig) else None)


def transfers_of(config: DeploymentConfig) -> Transfers:
    """What moving data between the regions of its providers takes, and between clouds. Raises ConfigError."""
    return Transfers().joined(*(one.transfers() for one in config.rented().values()))


def _aws(config: DeploymentConfig) -> AwsConfig | None:
    found = config.rented().get("aws")
    return found if isinstance(found, AwsConfig) else None
