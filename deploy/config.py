"""A deployment's configuration: one YAML file, every key checked."""

from __future__ import annotations

from ipaddress import IPv4Address
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, FiniteFloat, IPvAnyAddress, PositiveInt, field_validator, model_validator

from spotweave.deploy.objects.location import Bucket, parse
from spotweave.deploy.providers.config import ProviderConfig, provider_class
from spotweave.deploy.security.sandbox import Mode as SandboxMode
from spotweave.deploy.store.intents import Mode
from spotweave.deploy.yamlfile import ConfigError, Part, YamlFile

Seconds = Annotated[FiniteFloat, Field(gt=0)]
_Positive = Annotated[FiniteFloat, Field(gt=0, le=1e6)]


class ActingConfig(Part):
    """The acting policies of mode "shadow": rules, released policies or paths."""

    market: str = "expected_cost"  # for Spark jobs
    # for federated tasks; None: the market policy decides about these too
    federated: str | None = "round_cost"


class PolicyConfig(Part):
    """The policies, and whether they act. `policy: NAME` names one for all tasks."""

    # rule, released policy or path, for Spark jobs, tasks of bags and steps of workflows
    market: str = "spotweave"
    # the same for federated tasks; None: the market policy decides about these too
    federated: str | None = "spotweave"
    # of the market policy's value components; None: those it was trained with
    weights: tuple[FiniteFloat, ...] | None = None
    # "act"; "dry-run", which decides and does nothing; or "shadow": `acting` acts, and what these would have
    # chosen is written down next to it
    mode: Mode = Mode.ACT
    acting: ActingConfig = ActingConfig()  # who acts in mode "shadow"
    # planner of the regions in which steps of workflows run, of whose offers the market policy takes one.
    # None: that decides among the offers of all.
    workflows: Literal["annealing", "greedy", "heft", "cpop"] | None = None

    @model_validator(mode="before")
    @classmethod
    def _for_all(cls, policy: object) -> object:
        return {"market": policy, "federated": None} if isinstance(policy, str) else policy


class TlsConfig(Part):
    """TLS files, relative to the deployment's file."""

    certificate: Path  # PEM; the server's own first, then the chain
    key: Path  # PEM, permissions 0600


class QuotasConfig(Part):
    """What every submitter may take, admins too; tokens of one name are one submitter's."""

    live_jobs: PositiveInt = 1000  # of a submitter, that have not ended
    jobs_a_minute: PositiveInt = 60
    stored_mib: PositiveInt = 4096  # files that came with a submitter's jobs and are still kept
    all_stored_mib: PositiveInt = 32_768  # of all submitters together
    # of the disk with the jobs' folders; uploads leave it alone
    free_disk_mib: Annotated[int, Field(ge=0)] = 1024


class HttpConfig(Part):
    """The HTTP service: address, access and limits."""

    host: str = "127.0.0.1"  # address or name; beyond loopback it needs tokens and TLS
    port: Annotated[int, Field(ge=0, le=65535)] = 8421  # 0 for any that is free
    # whether requests need an access token. Without, everyone on this machine may do everything.
    tokens: bool = True
    tls: TlsConfig | None = None  # None for plain HTTP
    # `deploy.security.keys.INSECURE_WORDS`, to listen beyond loopback without protection
    insecure: str | None = None
    connections: PositiveInt = 1000  # at once; beyond them those go that keep the service waiting
    connections_each: PositiveInt = 500  # of one address. Behind a proxy all clients have its address.
    quotas: QuotasConfig = QuotasConfig()  # what a submitter may take


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
    """Checkpoint locations. One text is for both kinds of jobs."""

    # folder or URI under which Spark jobs keep theirs, as Hadoop knows it (`gs://`; `s3://` is understood as
    # `s3a://`); None: in the job's folder on this machine, which does only where nodes see that too
    spark: str | None = None
    # `s3://BUCKET/PREFIX`, `gs://BUCKET/PREFIX` or an absolute folder, which gets a copy of each round's
    # weights, and the checkpoints of bags; None: they are on this machine only
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
        sandbox_ids: FIRST-LAST of the user and group ids that jobs get where `serve` runs as root; no account
            may have one of them.
    """

    # of this machine as nodes reach it; masters, drivers and SuperLinks listen there only
    address: IPvAnyAddress = IPv4Address("127.0.0.1")
    node_python: str | None = None  # of the nodes, with this package and the jobs' libraries; None: as here
    node_spark_home: str | None = None  # SPARK_HOME of the nodes; None: as here
    node_java_home: str | None = None  # JAVA_HOME of the nodes; None: as here
    checkpoints: CheckpointsConfig = CheckpointsConfig()  # where jobs keep their checkpoints
    # how jobs' code on this machine is kept apart from the deployment and from that of others: drivers,
    # SuperLinks with their ServerApps, and what runs on instances of the local provider
    sandbox: SandboxMode = SandboxMode.AUTO
    trust_submitters: bool = False  # whoever may submit a job may do all that the scheduler may do
    # The range from which systemd takes ids for the while that a service runs.
    sandbox_ids: Annotated[str, Field(pattern=r"^[1-9][0-9]{2,8}-[1-9][0-9]{2,8}$")] = "61184-65519"
    # folders that jobs may read although a sandbox hides them (homes, /run, this file's folder)
    readable: tuple[Path, ...] = ()
    # GPUs of this machine, by the N of their /dev/nvidiaN, which ServerApps may use where the job asks for
    # GPUs
    server_gpus: tuple[Annotated[int, Field(ge=0, le=1023)], ...] = ()
    # by region: a folder, relative to this file, in which its cluster keeps what workflows read. This machine
    # and the region's nodes see it.
    data: dict[str, Path] = Field(default_factory=dict)
    # what a driver, or a SuperLink with its ServerApps, may have in memory; over it, it is killed and has
    # failed
    driver_memory_most_gib: _Positive = 8.0
    driver_files_most_gib: _Positive = 50.0  # the same of the files in the job's folder and its own
    driver_log_most_mib: _Positive = 1024.0  # the same of what it prints
    driver_processes_most: Annotated[int, Field(ge=10)] = 1000  # the same of its processes

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
    """A deployment."""

    state: Path  # folder of everything it must remember; absolute, or relative to the current folder
    store: str | None = None  # database URL; None: a SQLite file in `state`
    policy: PolicyConfig = PolicyConfig()  # who decides
    scheduler: LoopConfig = LoopConfig()  # the loop
    http: HttpConfig = HttpConfig()  # the service
    runners: RunnersConfig = RunnersConfig()  # what runs jobs
    # what everything may cost together, since the deployment began; a hard limit. None: none.
    budget_usd: Annotated[FiniteFloat, Field(gt=0)] | None = None
    # where it rents: files, relative to this one, by the provider's name
    providers: Annotated[dict[str, Path], Field(min_length=1)]
    # files of emulated clouds, relative to this file, by the provider's name: `spotweave demo` starts them;
    # `serve` does not (see `spotweave emulate aws` and `emulate gcp`)
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
