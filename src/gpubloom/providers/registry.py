"""The cloud providers by name. The module of a provider is imported when it is used."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Literal, Protocol, cast

from gpubloom.providers.base import ProviderError
from gpubloom.providers.cloud import Capabilities, CloudProvider, CredentialField
from gpubloom.storage.run_store import RunStore

# Each module has a PROVIDER of type ProviderSpec.
_MODULES: dict[str, str] = {
    "modal": "gpubloom.providers.modal.provider",
    "runpod": "gpubloom.providers.runpod.provider",
    "lambda": "gpubloom.providers.lambda_cloud.provider",
    "paperspace": "gpubloom.providers.paperspace.provider",
    "replicate": "gpubloom.providers.replicate.provider",
    "colab": "gpubloom.providers.colab.provider",
    "skypilot": "gpubloom.providers.skypilot.provider",
    "ray": "gpubloom.providers.ray.provider",
}


@dataclass(frozen=True)
class ProviderSpec(ABC):
    """A provider, before a user connects to it."""

    name: str
    title: str
    fields: tuple[CredentialField, ...]
    capabilities: Capabilities
    # Where a person finds the credentials.
    page: str

    def why_not(self) -> str | None:
        """Why the provider cannot be used on this server, and what to do. None: it can be used."""
        return None

    def open_store(self, key: str, credentials: Callable[[], Mapping[str, str]]) -> "OwnRunStore":
        """The provider's own store for the attempt with this key (`own_store`). Nothing is called yet.

        `credentials` may be read more than once: a person can replace them while a job runs.
        """
        raise ProviderError("no_store", f"{self.title} has no store of its own.")

    @abstractmethod
    def open(self, credentials: Mapping[str, str]) -> CloudProvider:
        """A connection for one person. Nothing is called yet."""


OwnStoreName = Literal["volume"]
# Known without importing a module: every list of offers says which store a job would use.
_OWN_STORES: dict[str, OwnStoreName] = {"modal": "volume"}


# Providers that give a machine or a container with an SSH port, and run our user data there.
_SSH_MACHINES = frozenset({"lambda", "runpod"})


class OwnRunStore(RunStore, Protocol):
    """A store that has a connection of its own."""

    def close(self) -> None: ...


def own_store(name: str) -> OwnStoreName | None:
    """What machines of a provider can exchange files through without any set-up; None: nothing."""
    return _OWN_STORES.get(name)


def gives_ssh_machines(name: str) -> bool:
    """Whether this server can connect to machines of a provider, so that their disk is the store of a job."""
    return name in _SSH_MACHINES


def provider_names() -> tuple[str, ...]:
    return tuple(_MODULES)


def provider_spec(name: str) -> ProviderSpec:
    """Raises ProviderError for an unknown name."""
    if name not in _MODULES:
        known = ", ".join(_MODULES)
        raise ProviderError("unknown_provider", f"Unknown provider {name!r}. Known providers: {known}.")
    return cast(ProviderSpec, import_module(_MODULES[name]).PROVIDER)
