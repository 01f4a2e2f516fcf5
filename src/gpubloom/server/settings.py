"""Everything an operator can set, read from BLOOM_* environment variables and a `.env` file."""

import os
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, ValidationError, field_validator, model_validator
from pydantic_core import PydanticCustomError
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from gpubloom.egress.policy import read_allowed
from gpubloom.errors import CodedError
from gpubloom.offers import load_prices
from gpubloom.sandbox.landlock import Policy
from gpubloom.storage import StorageSettings
from gpubloom.storage.store import StorageKind

LOOPBACK_HOSTS = ("localhost", "127.0.0.1", "[::1]")

# The one asynchronous driver for each kind of database, whatever the address says.
_DRIVERS = {
    "sqlite": "sqlite+aiosqlite",
    "postgres": "postgresql+psycopg",
    "postgresql": "postgresql+psycopg",
}


class SettingsError(CodedError, ValueError):
    """A BLOOM_* variable has a value that cannot be used."""

    code = "invalid_settings"


class Settings(BaseSettings):
    """One instance per process; nothing reads the environment behind its back."""

    model_config = SettingsConfigDict(env_prefix="BLOOM_", env_file=".env", extra="ignore", frozen=True)

    home: Path = Field(default_factory=lambda: Path.home() / ".gpubloom")
    database_url: str | None = None
    host: str = "127.0.0.1"
    port: int = Field(default=8000, ge=0, le=65535)
    public_url: str | None = None
    allowed_hosts: Annotated[tuple[str, ...], NoDecode] = ()
    trusted_proxies: str = ""
    signup: Literal["open", "closed"] = "closed"
    data_roots: Annotated[tuple[Path, ...], NoDecode] = ()
    max_upload_gb: float = Field(default=50, gt=0, le=1_000_000)
    machine_timeout_minutes: float = Field(default=30, gt=0, le=1_000_000)
    user_quota_gb: float = Field(default=500, gt=0, le=1_000_000)
    max_connections: int = Field(default=500, ge=1)
    max_connections_per_address: int = Field(default=100, ge=1)
    header_timeout_seconds: float = Field(default=20, gt=0)
    body_timeout_seconds: float = Field(default=30, gt=0)
    max_streams_per_user: int = Field(default=30, ge=1)
    max_downloads_per_user: int = Field(default=10, ge=1)
    max_queued_jobs_per_user: int = Field(default=200, ge=1)
    smtp_url: SecretStr | None = None
    mail_from: str = "GPU Bloom <bloom@localhost>"
    github_client_id: str | None = None
    github_client_secret: SecretStr | None = None
    google_client_id: str | None = None
    google_client_secret: SecretStr | None = None
    oidc_issuer: str | None = None
    oidc_client_id: str | None = None
    oidc_client_secret: SecretStr | None = None
    oidc_name: str = Field(default="single sign-on", min_length=1, max_length=60)
    log_format: Literal["text", "json"] = "text"
    # Unset: require on a server with a public address, otherwise prefer.
    sandbox: Policy | None = None
    egress_allow: str = ""
    prices: Path | None = None
    storage_kind: StorageKind = "s3"
    storage_bucket: str | None = None
    storage_key: str | None = None
    storage_secret: SecretStr | None = None
    storage_endpoint: str = ""
    storage_region: str = "us-east-1"
    storage_prefix: str = ""
    # Whether rented machines exchange files with this server itself. auto: if its address is public.
    server_store: Literal["auto", "on", "off"] = "auto"
    # Days; 0 keeps nothing in the bucket after a job has ended.
    artifact_retention_days: int = Field(30, ge=0, le=3650)

    @property
    def sandbox_mode(self) -> Policy:
        """What happens with trainings and tasks where there is no sandbox; scripts always need one."""
        return self.sandbox or ("prefer" if self.public_url is None else "require")

    @field_validator("home", mode="after")
    @classmethod
    def _absolute_home(cls, home: Path) -> Path:
        return home.expanduser().absolute()

    @field_validator("allowed_hosts", mode="before")
    @classmethod
    def _split_hosts(cls, value: object) -> object:
        if isinstance(value, str):
            return tuple(host.strip().lower() for host in value.split(",") if host.strip())
        return value

    @field_validator("data_roots", mode="before")
    @classmethod
    def _split_roots(cls, value: object) -> object:
        if isinstance(value, str):
            value = tuple(part for part in value.split(os.pathsep) if part)
        if isinstance(value, tuple | list):
            roots = tuple(Path(root).expanduser() for root in value)
            for root in roots:
                if not root.is_absolute():
                    raise PydanticCustomError("not_absolute_path", f"{str(root)!r} is not an absolute path")
            return roots
        return value

    @field_validator("egress_allow", mode="after")
    @classmethod
    def _usable_egress(cls, value: str) -> str:
        read_allowed(value)
        return value

    @field_validator("prices", mode="after")
    @classmethod
    def _usable_prices(cls, value: Path | None) -> Path | None:
        # A file that cannot be used is told at the start, not to the first person who asks for an offer.
        load_prices(value)
        return value

    @field_validator("database_url", mode="after")
    @classmethod
    def _known_database(cls, value: str | None) -> str | None:
        if not value:
            return None
        kind, separator, location = value.partition("://")
        driver = _DRIVERS.get(kind.partition("+")[0])
        if driver is None or not separator:
            # The value may hold a password, so it is not repeated.
            raise PydanticCustomError(
                "invalid_database_url", "use sqlite:////folder/file or postgresql://user:password@host/name"
            )
        return f"{driver}://{location}"

    @field_validator("public_url", mode="after")
    @classmethod
    def _plain_origin(cls, value: str | None) -> str | None:
        if value is None:
            return None
        parts = urlsplit(value)
        if parts.scheme not in {"http", "https"} or not parts.hostname or parts.path.strip("/"):
            raise PydanticCustomError(
                "invalid_address", "enter scheme and host only, for example https://bloom.example.org"
            )
        return f"{parts.scheme}://{parts.netloc}".lower()

    @field_validator("oidc_issuer", mode="after")
    @classmethod
    def _secure_issuer(cls, value: str | None) -> str | None:
        if not value:
            return None
        parts = urlsplit(value)
        local = parts.scheme == "http" and parts.hostname in {"localhost", "127.0.0.1", "::1"}
        if (parts.scheme != "https" and not local) or not parts.hostname or parts.query or parts.fragment:
            raise PydanticCustomError(
                "invalid_address", "enter the issuer's https address, for example https://id.example.org"
            )
        return value

    @model_validator(mode="after")
    def _bucket_with_key(self) -> Self:
        if self.storage_bucket and self.storage_kind == "gcs" and not self.storage_secret:
            raise PydanticCustomError(
                "storage_key_missing",
                "the bucket needs credentials: set BLOOM_STORAGE_SECRET to the JSON key of a service account",
            )
        if self.storage_bucket and self.storage is None:
            raise PydanticCustomError(
                "storage_key_missing",
                "the bucket needs credentials: also set BLOOM_STORAGE_KEY and BLOOM_STORAGE_SECRET",
            )
        return self

    @property
    def storage(self) -> StorageSettings | None:
        """The bucket for jobs on rented machines; None: jobs run on machines with a worker only."""
        key = self.storage_key or ""
        if not self.storage_bucket or not self.storage_secret or not (key or self.storage_kind == "gcs"):
            return None
        return StorageSettings(
            bucket=self.storage_bucket,
            key=key,
            secret=self.storage_secret.get_secret_value(),
            endpoint=self.storage_endpoint,
            region=self.storage_region,
            prefix=self.storage_prefix,
            kind=self.storage_kind,
        )

    @property
    def database(self) -> str:
        """The SQLAlchemy address; an embedded SQLite file unless another one is set."""
        return self.database_url or f"sqlite+aiosqlite:///{self.home / 'bloom.db'}"

    @property
    def machine_timeout(self) -> timedelta:
        """How long nothing may be heard of a machine before its jobs go to others."""
        return timedelta(minutes=self.machine_timeout_minutes)

    @property
    def uploads(self) -> Path:
        """Where the operator may put training data that every project can name by its path."""
        return self.home / "uploads"

    @property
    def address(self) -> str:
        """The address people type: the public one, or the one this process listens on."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return self.public_url or f"http://{host}:{self.port}"

    @property
    def secure(self) -> bool:
        """Whether browsers reach this server over TLS, so that cookies may demand it."""
        return self.address.startswith("https://")

    @property
    def hosts(self) -> frozenset[str]:
        """Host names this server answers to; anything else may be a DNS-rebinding attack."""
        own = urlsplit(self.address).hostname or ""
        own = f"[{own}]" if ":" in own else own
        return frozenset({*LOOPBACK_HOSTS, *self.allowed_hosts, own})


def load_settings(**flags: Any) -> Settings:
    """Read the environment and the flags. Raises with one sentence per invalid variable."""
    try:
        return Settings(**flags)
    except ValidationError as error:
        lines = [
            # Only the bucket's check looks at several variables at once.
            f"BLOOM_{'_'.join(map(str, item['loc'] or ('storage_bucket',))).upper()}: "
            f"{item['msg'].removeprefix('Value error, ')}"
            for item in error.errors()
        ]
        raise SettingsError("; ".join(lines)) from error
