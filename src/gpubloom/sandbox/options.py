"""What a sandbox shows and allows, as plain values that travel in a job file."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, Self

Kind = Literal["bind", "device", "tmpfs", "proc", "dev", "link", "text"]


@dataclass(frozen=True)
class Mount:
    """Something at a path inside. Later ones cover earlier ones.

    bind: a file or folder of outside. device: a device node of outside, if it is there. tmpfs: an empty
    folder of at most `size` bytes. link: a symbolic link to `source`. text: a read-only file with the
    text `source`. `optional`: left out when its source does not exist. `owned`: its files belong to the
    server's user outside and to the job's user inside.
    """

    kind: Kind
    target: str
    source: str = ""
    writable: bool = False
    optional: bool = False
    owned: bool = False
    size: int = 0


@dataclass(frozen=True)
class Limits:
    """What all processes inside may take together; `file_bytes` is of one file, `process_bytes` and
    `cpu_seconds` of one process. With less than `least_free_bytes` left on the disk the job is ended."""

    memory_bytes: int
    processes: int
    file_bytes: int | None = None
    process_bytes: int | None = None
    cpu_seconds: int | None = None
    least_free_bytes: int = 256 << 20


@dataclass(frozen=True)
class Options:
    """A whole sandbox. `noun`: what people call what runs in it. `folder`: where it starts, inside.

    `user`: its user when the server runs as root. `environment`: that of the command, alone or added to the
    agent's (`inherits`). `disk`: the folder outside whose free space is watched. `bubblewrap`: the
    program, or None to do without. `group`: the name of its control group.
    """

    noun: str
    mounts: tuple[Mount, ...]
    limits: Limits
    folder: str
    disk: str
    group: str
    user: int | None = None
    network: bool = False
    environment: Mapping[str, str] = field(default_factory=dict)
    inherits: bool = False
    bubblewrap: str | None = None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Self:
        mounts = tuple(Mount(**each) for each in content["mounts"])
        return cls(**{**content, "mounts": mounts, "limits": Limits(**content["limits"])})
