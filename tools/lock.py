"""Writes requirements.lock: every package that the server needs, with the sha256 of each of its files.

    python tools/lock.py

pip resolves `gpubloom[server]` with constraints.txt once for each platform and Python version, and reports
the file it would take. `pip install --require-hashes` then takes these files and no others. torch and what
comes with the extra `train` are left out: which build of torch is right depends on the GPU of the machine.
"""

import json
import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
LOCK = ROOT / "requirements.lock"
EXTRA = "server"
PYTHONS = ("3.11", "3.12", "3.13")
# Per platform the tags that its wheels may have; pip takes a wheel with any of them.
PLATFORMS = {
    "Linux on x86-64": tuple(f"manylinux_2_{minor}_x86_64" for minor in range(17, 35)),
    "Linux on ARM": tuple(f"manylinux_2_{minor}_aarch64" for minor in range(17, 35)),
    "macOS on ARM": tuple(f"macosx_{major}_0_arm64" for major in range(11, 16)),
}
_HEADER = f"""\
# What gpubloom[{EXTRA}] needs, with the sha256 of every file for {", ".join(PLATFORMS)} and
# Python {", ".join(PYTHONS)}. Written by tools/lock.py (make lock) from pyproject.toml and constraints.txt.
#   pip install --require-hashes -r requirements.lock && pip install --no-deps gpubloom-*.whl
"""

# Name to version and the hashes of its files.
Locked = dict[str, tuple[str, set[str]]]


def wanted(extra: str = EXTRA) -> list[Requirement]:
    """What an extra asks for, with the extras of our own that it names in place of their names."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    found: list[Requirement] = []
    for line in (*project["dependencies"], *project["optional-dependencies"][extra]):
        requirement = Requirement(line)
        if requirement.name == project["name"]:
            found += [inner for name in sorted(requirement.extras) for inner in wanted(name)]
        else:
            found.append(requirement)
    return found


def pinned() -> dict[str, str]:
    """The versions of constraints.txt by name."""
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pins = [line.split(";")[0].split("==") for line in lines if "==" in line and not line.startswith("#")]
    return {canonicalize_name(name.strip()): version.strip() for name, version in pins}


def read_lock(path: Path = LOCK) -> Locked:
    """The packages of a lock file."""
    found: Locked = {}
    name = ""
    for line in path.read_text().splitlines():
        if start := re.match(r"([\w.-]+)==(\S+)", line):
            name = start[1]
            found[name] = (start[2], set())
        if value := re.search(r"--hash=sha256:([0-9a-f]{64})", line):
            found[name][1].add(value[1])
    return found


def lock_text(locked: Mapping[str, tuple[str, set[str]]]) -> str:
    """A lock file as pip reads it."""
    parts = []
    for name, (version, hashes) in sorted(locked.items()):
        lines = " \\\n".join(f"    --hash=sha256:{one}" for one in sorted(hashes))
        parts.append(f"{name}=={version} \\\n{lines}\n")
    return _HEADER + "".join(parts)


def add_report(locked: Locked, report: Mapping[str, Any]) -> None:
    """Add what pip would install to what is locked."""
    for item in report["install"]:
        name = canonicalize_name(item["metadata"]["name"])
        version = item["metadata"]["version"]
        digest = item["download_info"]["archive_info"]["hashes"]["sha256"]
        known = locked.setdefault(name, (version, set()))
        if known[0] != version:
            raise SystemExit(f"{name} is {known[0]} on one platform and {version} on another: pin it.")
        known[1].add(digest)


def resolve(requirements: Iterable[Requirement], python: str, tags: Iterable[str]) -> dict[str, Any]:
    """pip's own report on what it would install there."""
    with tempfile.TemporaryDirectory() as folder:
        asked, report = Path(folder, "requirements.txt"), Path(folder, "report.json")
        asked.write_text("".join(f"{requirement}\n" for requirement in requirements))
        command = [
            *(sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed", "--quiet"),
            *("--target", folder, "--only-binary", ":all:", "--python-version", python),
            *(f"--platform={tag}" for tag in tags),
            *("--constraint", str(ROOT / "constraints.txt"), "--report", str(report), "-r", str(asked)),
        ]
        subprocess.run(command, check=True)
        found: dict[str, Any] = json.loads(report.read_text())
        return found


def main() -> None:
    locked: Locked = {}
    for platform, tags in PLATFORMS.items():
        for python in PYTHONS:
            print(f"Python {python}, {platform}", flush=True)
            add_report(locked, resolve(wanted(), python, tags))
    LOCK.write_text(lock_text(locked))
    print(f"{LOCK.name}: {len(locked)} packages")


if __name__ == "__main__":
    main()
