"""What ran: commit and changes, command line, packages, machine, configs, datasets; so that it can run again.

A thread of rank 0 looks once at the start and records one event of kind `ran`; adapters add the framework's
config and the datasets. Every part is limited in size and free of secrets (`redaction`). It is the owner's: a
read-only share of a job does not have it.
"""

import hashlib
import json
import os
import platform
import re
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from gpubloom.traincard.number_encoding import plain, to_json
from gpubloom.traincard.reader import Reader
from gpubloom.traincard.redaction import redact, redact_arguments, redact_config
from gpubloom.traincard.safe_paths import read_json_beneath

KIND = "ran"

_DIFF_CHARACTERS = 128 * 1024
_CONFIG_CHARACTERS = 64 * 1024
_ARGUMENTS, _ARGUMENT_CHARACTERS = 200, 2_000
_PACKAGES = 2_000
_UNTRACKED = 100
_DATASETS = 50
_GIT_SECONDS = 5.0
_HASHED_BYTES = 64 << 20
# Rows have to be written as JSON first, and the training waits.
_HASHED_ROW_BYTES = 8 << 20
# Of such a file not even a changed line is kept.
_SECRET_FILES = re.compile(
    r"(^|/)(\.env[^/]*|[^/]*(secret|credential)[^/]*|[^/]*\.(pem|key|p12|pfx))$", re.IGNORECASE
)
_DISTRIBUTION = re.compile(r"(?P<name>.+?)-(?P<version>[^-]+)\.dist-info")


def look() -> dict[str, Any]:
    """The parts that can be known at the start of a process; what cannot be known is absent."""
    found: dict[str, Any] = {
        "command": [part[:_ARGUMENT_CHARACTERS] for part in redact_arguments(sys.orig_argv[:_ARGUMENTS])],
        "folder": _without_home(str(Path.cwd())),
        "machine": _machine(),
        "packages": _packages(),
    }
    if git := _git():
        found["git"] = git
    return found


def config_fields(name: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of the event that records a config under a name."""
    config = redact_config(plain(values))
    text = to_json(config)
    if len(text) > _CONFIG_CHARACTERS:
        config = {"cut": f"{text[:_CONFIG_CHARACTERS]} … (cut: {len(text):,} characters)"}
    return {"configs": {name: config}}


def dataset_fields(name: str, data: Any) -> dict[str, Any] | None:
    """The fields of the event that records a dataset: a dataset of a library, rows, a file, a folder."""
    facts: dict[str, Any] = {"name": name}
    if isinstance(data, (str, os.PathLike)):
        path = Path(data)
        facts |= {"path": _without_home(str(path.absolute())), "fingerprint": _file_fingerprint(path)}
    else:
        fingerprint = getattr(data, "_fingerprint", None)
        facts["fingerprint"] = fingerprint if isinstance(fingerprint, str) else _content_fingerprint(data)
        try:
            facts["rows"] = len(data)
        except TypeError:
            facts["rows"] = None
        info, split = getattr(data, "info", None), getattr(data, "split", None)
        facts["source"] = getattr(info, "dataset_name", None)
        # A tensor has a method of this name.
        facts["split"] = None if split is None or callable(split) else str(split)
    known = {key: value for key, value in facts.items() if value is not None}
    return {"datasets": [known]} if len(known) > 1 else None


def merge(before: Mapping[str, Any], event: Mapping[str, Any]) -> dict[str, Any]:
    """What is known after one more event; a later attempt replaces the parts that it names."""
    merged = dict(before)
    for part in ("command", "folder", "machine", "packages", "git"):
        if part in event:
            merged[part] = event[part]
    if isinstance(configs := event.get("configs"), dict):
        merged["configs"] = {**merged.get("configs", {}), **configs}
    if isinstance(datasets := event.get("datasets"), list):
        new = [
            entry
            for entry in datasets
            if isinstance(entry, dict) and isinstance(entry.get("name"), str | None)
        ]
        names = {entry.get("name") for entry in new}
        kept = [entry for entry in merged.get("datasets", []) if entry.get("name") not in names]
        merged["datasets"] = [*kept, *new][-_DATASETS:]
    return merged


def load_what_ran(run_dir: str | os.PathLike[str]) -> dict[str, Any]:
    """What ran in a run directory, without reading its curves; empty when nothing was recorded."""
    reader = Reader(run_dir, ranks=[0], condensed=True, kinds=[KIND])
    found: dict[str, Any] = {}
    while events := reader.read_new():
        for event in events:
            inner = event.fields["events"] if event.kind == "condensed" else [event.fields]
            for fields in inner:
                if fields.get("kind") == KIND:
                    found = merge(found, fields)
    return with_train_config(found, Path(run_dir))


def with_train_config(found: Mapping[str, Any], run_dir: Path) -> dict[str, Any]:
    """Adds the config of a run of GPU Bloom's own trainer, which lies in its directory."""
    config = read_json_beneath(run_dir, "config.json")
    if config is None:
        return dict(found)
    return {
        **found,
        "configs": {**config_fields("TrainConfig", config)["configs"], **found.get("configs", {})},
    }


def _without_home(path: str) -> str:
    home = os.path.expanduser("~")  # noqa: PTH111 - compared as text; a user may have no home
    return f"~{path[len(home) :]}" if home != "/" and path.startswith(f"{home}/") else path


def _machine() -> dict[str, Any]:
    found: dict[str, Any] = {
        "host": socket.gethostname(),
        "system": platform.platform(),
        "python": platform.python_version(),
        "cpus": os.cpu_count(),
        "cpu": _cpu_name(),
    }
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        found["ram_bytes"] = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    version = getattr(sys.modules.get("torch"), "version", None)
    found["cuda"] = getattr(version, "cuda", None)
    return {name: value for name, value in found.items() if value is not None}


def _cpu_name() -> str | None:
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:  # noqa: PTH123 - no path of ours
            return next(
                (line.partition(":")[2].strip() for line in file if line.startswith("model name")), None
            )
    except OSError:
        return platform.processor() or None


def _packages() -> dict[str, str]:
    """By the names of folders: reading the metadata of all packages takes a thousand times as long."""
    found: dict[str, str] = {}
    for folder in sys.path:
        try:
            names = os.listdir(folder or ".")  # noqa: PTH208 - only names are wanted
        except OSError:
            continue
        for name in names:
            if match := _DISTRIBUTION.fullmatch(name):
                found.setdefault(match["name"].replace("_", "-").lower(), match["version"])
    return dict(sorted(found.items())[:_PACKAGES])


def _git() -> dict[str, Any] | None:
    commit = _run_git("rev-parse", "HEAD")
    if commit is None:
        return None
    status = _run_git("status", "--porcelain", "--untracked-files=normal") or ""
    untracked = [line[3:] for line in status.splitlines() if line.startswith("?? ")]
    diff = _without_secret_files(_run_git("diff", "HEAD", "--no-color", "--no-ext-diff") or "")
    found: dict[str, Any] = {
        "commit": commit.strip(),
        "branch": (_run_git("rev-parse", "--abbrev-ref", "HEAD") or "").strip(),
        "remote": redact((_run_git("config", "--get", "remote.origin.url") or "").strip()),
        "changed": any(not line.startswith("?? ") for line in status.splitlines()),
        "untracked": untracked[:_UNTRACKED],
        "untracked_left_out": max(0, len(untracked) - _UNTRACKED),
        "diff": redact(diff[:_DIFF_CHARACTERS]),
        "diff_characters_left_out": max(0, len(diff) - _DIFF_CHARACTERS),
    }
    return {name: value for name, value in found.items() if value not in ("", [], 0)}


def _run_git(*arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", *arguments],  # noqa: S607 - whichever git the person uses
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_GIT_SECONDS,
            check=False,
            # Looking must not change the person's index, nor ask for a password.
            env={
                **os.environ,
                **_ceiling(),
                "GIT_OPTIONAL_LOCKS": "0",
                "GIT_TERMINAL_PROMPT": "0",
                "LC_ALL": "C",
            },
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.decode(errors="replace") if done.returncode == 0 else None


def _ceiling() -> dict[str, str]:
    """In a job: nothing above its run directory, where a checkout would be the operator's."""
    if os.environ.get("BLOOM_JOB_ID") and (run_dir := os.environ.get("BLOOM_RUN_DIR")):
        return {"GIT_CEILING_DIRECTORIES": str(Path(run_dir).parent)}
    return {}


def _without_secret_files(diff: str) -> str:
    kept = []
    for part in re.split(r"(?m)^(?=diff --git )", diff):
        path = part.partition("\n")[0].rpartition(" b/")[2]
        kept.append(f"diff --git {path}: left out\n" if path and _SECRET_FILES.search(path) else part)
    return "".join(kept)


def _content_fingerprint(data: Any) -> str | None:
    """Of data in memory: arrays, tensors on the host, a TensorDataset, lists of plain rows.

    Rows of any other dataset are not asked for: one may load files, or draw random numbers.
    """
    digest, hashed = hashlib.sha256(), 0
    most = _HASHED_ROW_BYTES if isinstance(data, (list, tuple)) else _HASHED_BYTES
    try:
        for part in _parts(data):
            digest.update(part[: most - hashed])
            hashed += len(part)
            if hashed > most:
                return f"start:{digest.hexdigest()}"
    except (TypeError, ValueError, RuntimeError, AttributeError):
        return None
    return f"sha256:{digest.hexdigest()}" if hashed else None


def _parts(data: Any) -> Iterator[bytes | memoryview]:
    if isinstance(data, (list, tuple)):
        for row in data:
            yield json.dumps(row, sort_keys=True).encode()
        return
    tensors = getattr(data, "tensors", None)
    for array in tensors if isinstance(tensors, tuple) else (data,):
        yield f"{array.dtype}{tuple(array.shape)}".encode()
        on_host = array
        if hasattr(array, "detach"):
            if array.device.type != "cpu":
                raise TypeError
            # As bytes: numpy does not know every type of torch.
            on_host = array.detach().contiguous().view(sys.modules["torch"].uint8).numpy()
        yield memoryview(on_host).cast("B")


def _file_fingerprint(path: Path) -> str | None:
    """The content of a small file; of a large one or a folder, the sizes and times of its files."""
    digest = hashlib.sha256()
    try:
        if path.is_file() and path.stat().st_size <= _HASHED_BYTES:
            digest.update(path.read_bytes())
            return f"sha256:{digest.hexdigest()}"
        files = (
            [path] if path.is_file() else sorted(each for each in path.rglob("*") if each.is_file())[:10_000]
        )
        for file in files:
            state = file.stat()
            digest.update(f"{file.relative_to(path.parent)}\0{state.st_size}\0{state.st_mtime_ns}\n".encode())
    except OSError:
        return None
    return f"files:{digest.hexdigest()}" if files else None
