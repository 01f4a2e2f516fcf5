"""What a job takes along to another machine, beside its run directory: our own package, others by name."""

import hashlib
import re
import zipfile
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path
from uuid import uuid4

import gpubloom
from gpubloom.server.jobs.tables import TrainingJob

# What no training process imports: the service tower, but for what both towers stand on.
_STAY_HERE = {"cli", "offers", "providers", "scripts", "server", "storage", "worker", "__pycache__"}
# The oldest moment a zip file can name: the same sources give the same bytes, which are stored once.
_TIME = (1980, 1, 1, 0, 0, 0)
_OPTIONAL = re.compile(r"""(?P<what>[^;]+?)\s*;.*\bextra\s*==\s*['"](?P<extra>[\w-]+)['"]""")
_OWN = re.compile(r"gpubloom\[(?P<extras>[\w,-]+)\]")


@dataclass(frozen=True)
class PackageDependencies:
    """`package`: gpubloom as one file, for a job that imports it. `packages`: what pip installs there."""

    package: Path | None
    packages: tuple[str, ...]


def package_dependencies(job: TrainingJob, folder: Path) -> PackageDependencies:
    """What this job needs; files are made in `folder`. ValueError: jobs of its kind do not travel."""
    if job.kind == "script":
        return PackageDependencies(None, tuple(job.config.get("packages") or ()))
    if job.kind == "train":
        backend = job.config.get("backend")
        extra = "trl" if backend in {"trl", "unsloth"} else "train"
        own = [name for name in ("bitsandbytes", "unsloth") if _is_needed(name, job)]
        return PackageDependencies(build_package(folder), (*requirements_of(extra), *own))
    raise ValueError(f"Jobs of the kind {job.kind} run where their files lie; they cannot be sent elsewhere.")


def _is_needed(name: str, job: TrainingJob) -> bool:
    backend = job.config.get("backend")
    if name == "unsloth":
        return backend == "unsloth"
    return backend in {"trl", "unsloth"} and job.config.get("method") == "qlora"


def requirements_of(extra: str) -> tuple[str, ...]:
    """What pip installs for one of our extras; our own package comes with the job."""
    try:
        declared = requires("gpubloom") or []
    except PackageNotFoundError:
        raise ValueError("gpubloom is not installed as a package, so nobody knows what it needs.") from None
    wanted, seen, found = [extra], set(), []
    while wanted:
        name = wanted.pop(0)
        seen.add(name)
        for line in declared:
            match = _OPTIONAL.match(line)
            if match is None or match["extra"] != name:
                continue
            own = _OWN.match(match["what"])
            if own is None:
                found.append(match["what"].strip())
            else:
                wanted += [each for each in own["extras"].split(",") if each not in seen]
    return tuple(dict.fromkeys(found))


def build_package(folder: Path) -> Path:
    """gpubloom as one file that is unpacked where it is needed; built when it is not there yet."""
    root = Path(gpubloom.__path__[0])
    files = [file for part in root.iterdir() if part.name not in _STAY_HERE for file in _files_of(part)]
    kept = {f"gpubloom/{file.relative_to(root).as_posix()}": file.read_bytes() for file in sorted(files)}
    digest = hashlib.sha256()
    for name, content in kept.items():
        digest.update(f"{name}\0{len(content)}\0".encode() + content)
    target = folder / f"gpubloom-{gpubloom.__version__}-{digest.hexdigest()[:16]}.zip"
    if not target.exists():
        folder.mkdir(parents=True, exist_ok=True)
        # Several jobs may need it at once.
        temporary = target.with_name(f".{target.name}.{uuid4()}.tmp")
        with zipfile.ZipFile(temporary, "w") as archive:
            for name, content in kept.items():
                archive.writestr(zipfile.ZipInfo(name, _TIME), content)
        temporary.replace(target)
    return target


def _files_of(part: Path) -> list[Path]:
    found = [part] if part.is_file() else part.rglob("*")
    return [file for file in found if file.is_file() and "__pycache__" not in file.parts]
