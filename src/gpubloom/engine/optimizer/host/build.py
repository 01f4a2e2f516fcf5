"""Compiles a C file on first use and keeps the library in the user's cache.

A library is named after everything that decides what is in it: source, flags, compiler, processor. It appears
under that name by one rename, so any number of processes may build at once, and a home directory shared by
different machines holds one library for each. Nothing is ever loaded from a folder that others can write to.
"""

import contextlib
import ctypes
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

# -ffast-math is absent on purpose: loading such a library flushes denormals to zero for the whole thread.
# Without contraction a result does not depend on whether the processor can fuse a product and a sum.
_FLAGS = ("-O3", "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=off", "-shared", "-fPIC", "-std=c11")
# Wide vectors make arithmetic on encodings a sixth faster. Not every compiler and processor knows them.
_PROCESSOR_FLAGS = (("-march=native", "-mprefer-vector-width=512"), ("-march=native",), ("-mcpu=native",), ())
_COMPILERS = ("cc", "gcc", "clang")
_SECONDS = 120


class CannotBuild(Exception):
    """The message says why, as the end of a sentence."""


def load(source: Path) -> ctypes.CDLL:
    """The library of a C file: from the cache, or compiled now. Raises `CannotBuild`."""
    compiler = _compiler()
    name = f"{source.stem}-{_key(source, compiler)}.so"
    # Where there is no cache (read-only, full, open to others), this process builds for itself alone.
    with contextlib.suppress(OSError):
        return _from_cache(compiler, source, _private_cache() / name)
    try:
        with tempfile.TemporaryDirectory(prefix="gpubloom-") as building:
            return _open(_compile(compiler, source, Path(building)))
    except OSError as error:
        raise CannotBuild(f"no folder for the build: {error}") from error


def _from_cache(compiler: str, source: Path, library: Path) -> ctypes.CDLL:
    if library.exists():
        # A damaged file is replaced.
        with contextlib.suppress(OSError):
            return _open(library)
    with tempfile.TemporaryDirectory(dir=library.parent, prefix=f"{source.stem}-") as building:
        compiled = _compile(compiler, source, Path(building))
        with compiled.open("rb") as written:
            os.fsync(written.fileno())
        compiled.replace(library)
    return _open(library)


def _compiler() -> str:
    asked = os.environ.get("BLOOM_CC")
    for name in [asked] if asked else _COMPILERS:
        if found := shutil.which(name):
            return found
    if asked:
        raise CannotBuild(f"BLOOM_CC is set to {asked}, which does not exist")
    raise CannotBuild("no C compiler: neither cc nor gcc nor clang is installed")


def _key(source: Path, compiler: str) -> str:
    parts = [
        source.read_bytes().decode(),
        repr((_FLAGS, _PROCESSOR_FLAGS)),
        _version(compiler, Path(compiler).stat().st_mtime_ns),
        _processor(),
    ]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]


@cache
def _version(compiler: str, _changed_ns: int) -> str:
    """Asked once by each process: to start one from a process that holds a model takes long."""
    return _output_of([compiler, "--version"])


def _processor() -> str:
    """What `native` means here: machines with equal flags may share a library."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return f"{platform.machine()} {platform.processor()}"
    wanted = ("flags", "Features", "model name", "CPU part", "isa")
    found = {name: line for line in reversed(lines) if (name := line.split(":")[0].strip()) in wanted}
    return "\n".join([platform.machine(), *(found[name] for name in sorted(found))])


def _private_cache() -> Path:
    root = os.environ.get("XDG_CACHE_HOME")
    folder = (Path(root) if root else Path.home() / ".cache") / "gpubloom"
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    status = folder.stat()
    if status.st_uid != os.geteuid() or status.st_mode & 0o022:
        raise PermissionError(
            f"Other users can change files in {folder}: become its owner, and run chmod go-w on it."
        )
    return folder


def _compile(compiler: str, source: Path, folder: Path) -> Path:
    library = folder / f"{source.stem}.so"
    reason = ""
    for processor_flags in _PROCESSOR_FLAGS:
        command = [compiler, *_FLAGS, *processor_flags, str(source), "-o", str(library), "-lm"]
        try:
            _output_of(command)
        except CannotBuild as error:
            reason = reason or str(error)
        else:
            return library
    raise CannotBuild(reason)


def _output_of(command: list[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CannotBuild(f"{command[0]} could not be run: {error}") from error
    if done.returncode != 0:
        said = [line for line in done.stderr.splitlines() if line.strip()] or ["no error message"]
        raise CannotBuild(f"{command[0]} failed: {said[0].strip()}")
    return done.stdout


def _open(library: Path) -> ctypes.CDLL:
    return ctypes.CDLL(str(library))
