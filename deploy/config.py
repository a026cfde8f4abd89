"""A deployment's configuration: one YAML file, every key checked."""

from __future__ import annotations

from ipaddress import IPv4Address
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, FiniteFloat, IPvAnyAddress, PositiveInt, field_validator, model_validator

from deploy.objects.location import Bucket, parse
from deploy.providers.config import ProviderConfig, provider_class
from deploy.security.sandbox import Mode as SandboxMode
from deploy.store.decisions import Mode
from deploy.yamlfile import ConfigError, Part, YamlFile

Seconds = Annotated[FiniteFloat, Field(gt=0)]
_Positive = Annotated[FiniteFloat, Field(gt=0, le=1e6)]


class ActingConfig(Part):
    """The acting policies of mode "shadow": rules, released policies or paths.

    Attributes:
        market: for Spark jobs.
        federated: for federated tasks; None: the market policy decides about these too.
    """

    market: str = "expected_cost"
    federated: str | None = "round_cost"


class PolicyConfig(Part):
    """The policies, and whether they act. `policy: NAME` names one for all tasks.

    Attributes:
        market: rule, released policy or path, for Spark jobs, tasks of bags and steps of workflows.
        federated: the same for federated tasks; None: the market policy decides about these too.
        weights: of the market policy's value components; None: those it was trained with.
        mode: "act"; "dry-run", which decides and does nothing; or "shadow": `acting` acts, and what these
            would have chosen is written down next to it.
        acting: who acts in mode "shadow".
        workflows: planner of the clusters on which steps of workflows run, of whose offers the market policy
            takes one. None: that decides among all.
    """

    market: str = "spotweave"
    federated: str | None = "spotweave"
    weights: tuple[FiniteFloat, ...] | None = None
    mode: Mode = Mode.ACT
    acting: ActingConfig = ActingConfig()
    workflows: Literal["annealing", "greedy", "heft", "cpop"] | None = "annealing"

    @model_validator(mode="before")
    @classmethod
    def _for_all(cls, policy: object) -> object:
        return {"market": policy, "federated": None} if isinstance(policy, str) else policy


class TlsConfig(Part):
    """TLS files, relative to the deployment's file.

    Attributes:
        certificate: PEM; the server's own first, then the chain.
        key: PEM, permissions 0600.
    """

    certificate: Path
    key: Path


class QuotasConfig(Part):
    """What every submitter may take, admins too; tokens of one name are one submitter's.

    Attributes:
        live_jobs: of a submitter, that have not ended.
        stored_mib: files that came with a submitter's jobs and are still kept.
        all_stored_mib: of all submitters together.
        free_disk_mib: of the disk with the jobs' folders; uploads leave it alone.
    """

    live_jobs: PositiveInt = 1000
    jobs_a_minute: PositiveInt = 60
    stored_mib: PositiveInt = 4096
    all_stored_mib: PositiveInt = 32_768
    free_disk_mib: Annotated[int, Field(ge=0)] = 1024


class HttpConfig(Part):
    """The HTTP service: address, access and limits.

    Attributes:
        host: address or name; beyond loopback it needs tokens and TLS.
        port: 0 for any that is free.
        tokens: whether requests need an access token. Without, everyone on this machine may do everything.
        tls: None for plain HTTP.
        insecure: `deploy.security.tls.INSECURE_WORDS`, to listen beyond loopback without protection.
        connections: at once; beyond them those go that keep the service waiting.
        connections_each: of one address. Behind a proxy all clients have its address.
        quotas: what a submitter may take.
    """

    host: str = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65535)] = 8421
    tokens: bool = True
    tls: TlsConfig | None = None
    insecure: str | None = None
    connections: PositiveInt = 1000
    connections_each: PositiveInt = 500
    quotas: QuotasConfig = QuotasConfig()


class LoopConfig(Part):
    """The loop; what is left out has the default of `deploy.scheduler.settings.SchedulerSettings`."""

    period_s: Seconds = 2.0
    ask_again_s: Seconds = 15.0
    cool_down_s: Seconds = 60.0
    ready_within_s: Seconds = 300.0
    reconsider_s: Annotated[FiniteFloat, Field(ge=0)] = 1800.0
    losses_most: Annotated[int, Field(gt=0)] = 50
    failures_most: Annotated[int, Field(gt=0)] = 6
    silent_within_s: Seconds = 90.0
    vanished_after_s: Seconds = 900.0


class CheckpointsConfig(Part):
    """Checkpoint locations. One text is for both kinds of jobs.

    Attributes:
        spark: folder or URI under which Spark jobs keep theirs, as Hadoop knows it (`gs://`; `s3://` is
            understood as `s3a://`); None: in the job's folder on this machine, which does only where nodes
            see that too.
        flower: `s3://BUCKET/PREFIX`, `gs://BUCKET/PREFIX` or an absolute folder, which gets a copy of each
            round's weights, and the checkpoints of bags; None: they are on this machine only.
    """

    spark: str | None = None
    flower: str | None = None

    @field_validator("spark")
    @classmethod
    def _hadoop(cls, place: str | None) -> str | None:
        if place is None or not place.startswith(("s3://", "s3a://", "gs://")):
            return place
        where = parse(place)
        assert isinstance(where, Bucket)
        return where.spark_uri

    @field_validator("flower")
    @classmethod
    def _kept(cls, place: str | None) -> str | None:
        if place is not None:
            parse(place)
        return place


class RunnersConfig(Part):
    """What runs jobs: Spark's master and drivers and Flower's SuperLinks here, their other halves on nodes.

    Attributes:
        address: of this machine as nodes reach it; masters, drivers and SuperLinks listen there only.
        node_python: of the nodes, with this package and the jobs' libraries; None: as here.
        node_spark_home: SPARK_HOME of the nodes; None: as here.
        node_java_home: JAVA_HOME of the nodes; None: as here.
        checkpoints: where jobs keep their checkpoints.
        sandbox: how jobs' code on this machine is kept apart from the deployment and from that of others:
            drivers, SuperLinks with their ServerApps, and what runs on instances of the local provider.
        trust_submitters: whoever may submit a job may do all that the scheduler may do.
        sandbox_ids: FIRST-LAST of the user and group ids that jobs get where `serve` runs as root; no account
            may have one of them.
        readable: folders that jobs may read although a sandbox hides them (homes, /run, this file's folder).
        server_gpus: GPUs of this machine, by the N of their /dev/nvidiaN, which ServerApps may use where the
            job asks for GPUs.
        data: by region: a folder, relative to this file, in which its cluster keeps what workflows read. This
            machine and the region's nodes see it.
        driver_memory_most_gib: what a driver, or a SuperLink with its ServerApps, may have in memory; over
            it, it is killed and has failed.
        driver_files_most_gib: the same of the files in the job's folder and its own.
        driver_log_most_mib: the same of what it prints.
        driver_processes_most: the same of its processes.
    """

    address: IPvAnyAddress = IPv4Address("127.0.0.1")
    node_python: str | None = None
    node_spark_home: str | None = None
    node_java_home: str | None = None
    checkpoints: CheckpointsConfig = CheckpointsConfig()
    sandbox: SandboxMode = SandboxMode.AUTO
    trust_submitters: bool = False
    # The range from which systemd takes ids for the while that a service runs.
    sandbox_ids: Annotated[str, Field(pattern=r"^[1-9][0-9]{2,8}-[1-9][0-9]{2,8}$")] = "61184-65519"
    readable: tuple[Path, ...] = ()
    server_gpus: tuple[Annotated[int, Field(ge=0, le=1023)], ...] = ()
    data: dict[str, Path] = Field(default_factory=dict)
    driver_memory_most_gib: _Positive = 8.0
    driver_files_most_gib: _Positive = 50.0
    driver_log_most_mib: _Positive = 1024.0
    driver_processes_most: Annotated[int, Field(ge=10)] = 1000

    @property
    def ids(self) -> tuple[int, int]:
        """First and last of `sandbox_ids`."""
        first, _, last = self.sandbox_ids.partition("-")
        return int(first), int(last)

    @field_validator("sandbox_ids")
    @classmethod
    def _enough(cls, ids: str) -> str:
        first, _, last = ids.partition("-")
        if int(last) < int(first) + 15:
            raise ValueError("expected FIRST-LAST of at least 16 ids")
        return ids

    @field_validator("readable")
    @classmethod
    def _absolute(cls, paths: tuple[Path, ...]) -> tuple[Path, ...]:
        if wrong := next((path for path in paths if not path.is_absolute()), None):
            raise ValueError(f"expected absolute paths, not {wrong}")
        return paths

    @field_validator("checkpoints", mode="before")
    @classmethod
    def _for_both(cls, place: object) -> object:
        return {"spark": place, "flower": place} if isinstance(place, str) else place

    @field_validator("address")
    @classmethod
    def _one(cls, address: IPvAnyAddress) -> IPvAnyAddress:
        if address.is_unspecified:
            raise ValueError("expected one address of this machine, by which nodes find it")
        return address


class DeploymentConfig(YamlFile):
    """A deployment.

    Attributes:
        state: folder of everything it must remember; absolute, or relative to the current folder.
        store: database URL; None: a SQLite file in `state`.
        policy: who decides.
        scheduler: the loop.
        http: the service.
        runners: what runs jobs.
        budget_usd: what everything may cost together, since the deployment began; a hard limit. None: none.
        providers: where it rents: files, relative to this one, by the provider's name.
        emulators: files of emulated clouds, relative to this file, by the provider's name: `python -m
            deploy.demo` starts them; `serve` does not (see `spotweave emulate aws` and `emulate gcp`).
    """

    state: Path
    store: str | None = None
    policy: PolicyConfig = PolicyConfig()
    scheduler: LoopConfig = LoopConfig()
    http: HttpConfig = HttpConfig()
    runners: RunnersConfig = RunnersConfig()
    budget_usd: Annotated[FiniteFloat, Field(gt=0)] | None = None
    providers: Annotated[dict[str, Path], Field(min_length=1)]
    emulators: dict[str, Path] = Field(default_factory=dict)

    @property
    def state_folder(self) -> Path:
        """Absolute."""
        return self.state.resolve()

    @property
    def jobs_folder(self) -> Path:
        """Parent folder of the jobs' own folders."""
        return self.state_folder / "jobs"

    @property
    def store_url(self) -> str:
        """Database URL."""
        return self.store if self.store is not None else f"sqlite:///{self.state_folder / 'store.db'}"

    def data_folders(self) -> dict[str, Path]:
        """By region, absolute: what its cluster keeps. Raises ConfigError."""
        found = {region: (self.folder / path).resolve() for region, path in self.runners.data.items()}
        for region, path in found.items():
            if not path.is_dir():
                raise ConfigError(f"runners.data.{region}: {path} is no folder: make it, or name another one")
        return found

    @property
    def key_file(self) -> Path | None:
        """Path of the deployment's key; None: next to the SQLite database."""
        return None if self.store_url.startswith("sqlite") else self.state_folder / "deployment.key"

    def dry_run(self) -> DeploymentConfig:
        """The same, deciding and doing nothing."""
        return self.model_copy(update={"policy": self.policy.model_copy(update={"mode": Mode.DRY_RUN})})

    def rented(self) -> dict[str, ProviderConfig]:
        """Providers by name, with their state inside the deployment's.

        Raises:
            ConfigError: if one of them cannot be used, or its instances could not reach what runs jobs here.
        """
        found = {}
        for name, file in self.providers.items():
            one = provider_class(name).load(self.folder / file)
            one.require_reachable(self.runners.address)
            found[name] = one.model_copy(update={"state": self.state_folder / name})
        return found
