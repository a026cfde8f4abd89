"""A provider as a deployment's file names it (`providers: {NAME: FILE}`), and where its class is found.

Ours are the folders here that have a `config.py`, in which NAMEConfig is the class. A package of yours adds
one by an entry point of the group `spotweave.providers` that names a subclass of `ProviderConfig`; see
docs/extending.md.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import entry_points, version
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import IPvAnyAddress

from spotweave.deploy.billing import Transfers
from spotweave.deploy.model.instances import Market, Offer
from spotweave.deploy.providers.base import Provider
from spotweave.deploy.security.sandbox import Sandbox
from spotweave.deploy.yamlfile import ConfigError, YamlFile

GROUP = "spotweave.providers"


@dataclass(frozen=True)
class Place:
    """Location and market of an offer; `zone` is "" if the offer is for the whole region."""

    provider: str
    region: str
    zone: str
    instance_type: str
    market: Market

    @property
    def offer_id(self) -> str:
        """PROVIDER/ZONE or REGION/TYPE/MARKET."""
        return f"{self.provider}/{self.zone or self.region}/{self.instance_type}/{self.market}"


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at before a launch."""

    what: str  # what it is about, e.g. "us-east-1 image".
    verdict: Literal["right", "missing", "unknown"]  # "unknown" where we may not look: it may be right
    text: str  # one line; what to do, where it is missing


def image_finding(what: str, image: str, made_for: str | None) -> Finding:
    """Whether an image has what nodes need, by its tag (or label) `spotweave`: a version."""
    ours = version("spotweave")
    if made_for is None:
        text = f"{image} has no tag `spotweave`: image.sh builds one with driver, Java and agent"
        return Finding(what, "unknown", text)
    if made_for.replace("-", ".") != ours:
        text = f"{image} was built for spotweave {made_for}, but this is {ours}: rebuild it with image.sh"
        return Finding(what, "missing", text)
    return Finding(what, "right", f"{image}, built for spotweave {ours}")


def granted(what: str, where: str, denied: Sequence[str], remedy: str) -> Iterator[Finding]:
    """Findings about rights on a bucket."""
    for one in denied:
        yield Finding(what, "missing", f"{where}: this identity may not {one}: {remedy}")
    if not denied:
        yield Finding(what, "right", f"{where}: may be listed, written, read and deleted")


class ProviderConfig(YamlFile):
    """A provider's file: its fields are the keys. `open` and `places` are required of a provider."""

    # folder of what the provider must remember. A deployment sets it to one inside its own.
    state: Path | None = None
    recorded: ClassVar[bool] = True  # whether `spotweave record` writes down what was seen of its offers
    # whether its nodes join over HTTP, because their certificates are made on them
    joins: ClassVar[bool] = False

    @property
    def state_folder(self) -> Path | None:
        """Absolute."""
        return None if self.state is None else (self.folder / self.state).resolve()

    @abstractmethod
    def open(self, sandbox: Sandbox | None = None) -> Provider:
        """The provider; `sandbox`: around what it runs on this machine. Raises ConfigError, ProviderError."""

    @abstractmethod
    def places(self) -> Mapping[str, Place]:
        """Everything that may be rented, by offer id, as the file says. Raises ConfigError."""

    def looks_after(self, region: str) -> bool:
        """Whether instances in this region would be seen and ended."""
        return any(place.region == region for place in self.places().values())

    def require_reachable(self, address: IPvAnyAddress) -> None:
        """Refuse an address of the scheduler's machine that instances cannot reach. Raises ConfigError."""

    def check(self, deployment: str) -> Iterator[Finding]:
        """What is right and missing for launches of a deployment; nothing is changed. Raises ConfigError."""
        yield from ()

    def transfers(self) -> Transfers:
        """What moving data between its regions takes. Raises ConfigError."""
        return Transfers()

    def details(
        self, provider: Provider, offers: Sequence[Offer], now_s: float
    ) -> tuple[Mapping[str, Mapping[str, Any]], Sequence[str]]:
        """More about offers than the scheduler needs, for `spotweave offers`.

        Returns facts by offer id, such as {"score": 3}; and notes about what could not be learnt. Raises
        ProviderError if it cannot be asked now.
        """
        return {}, ()


def _ours() -> dict[str, str]:
    """Module and class of each provider in this folder, by its name."""
    found = (path.parent.name for path in Path(__file__).parent.glob("*/config.py"))
    return {name: f"spotweave.deploy.providers.{name}.config:{name.capitalize()}Config" for name in found}


def provider_class(name: str) -> type[ProviderConfig]:
    """The class of the provider of this name. Raises ConfigError (one line)."""
    known = {one.name: one.value for one in entry_points(group=GROUP)} | _ours()
    if name not in known:
        raise ConfigError(
            f"no provider {name!r} is installed: expected {', '.join(sorted(known))} (docs/extending.md)"
        )
    module, _, attribute = known[name].partition(":")
    try:
        found = getattr(import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"provider {name}: {known[name]} cannot be imported: {error}") from error
    if not (isinstance(found, type) and issubclass(found, ProviderConfig)):
        raise ConfigError(f"provider {name}: {known[name]} is no subclass of ProviderConfig")
    return found
