"""Compares the versions in use with a list of known vulnerabilities.

    python tools/vulnerabilities.py FILE

FILE is a JSON file, a folder or a zip of JSON files in the OSV format, for example the lists that osv.dev
publishes for PyPI and npm. Nothing is sent anywhere. Compared are the Python packages of requirements.lock
and constraints.txt and the npm packages of ui/package-lock.json. The exit status is 1 when a version is
affected, and a table says which.
"""

import json
import re
import sys
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

from lock import ROOT, pinned, read_lock
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

# By ecosystem and name: the versions in use, each with the file that says so.
Used = dict[tuple[str, str], dict[str, str]]


@dataclass(frozen=True, order=True)
class Hit:
    """A version that a record names as affected."""

    package: str
    version: str
    source: str
    vulnerability: str
    fixed: str
    summary: str


def used_versions() -> Used:
    found: Used = {}
    for name, version in pinned().items():
        found.setdefault(("PyPI", name), {})[version] = "constraints.txt"
    for name, (version, _) in read_lock().items():
        found.setdefault(("PyPI", name), {})[version] = "requirements.lock"
    packages = json.loads((ROOT / "ui/package-lock.json").read_text())["packages"]
    for path, package in packages.items():
        if path and "version" in package:
            name = path.rpartition("node_modules/")[2]
            found.setdefault(("npm", name), {})[package["version"]] = "package-lock.json"
    return found


def records(source: Path) -> Iterator[dict[str, Any]]:
    """The records of a file, of a folder with all that is in it, or of a zip."""
    texts: Iterable[bytes]
    if source.is_dir():
        texts = (path.read_bytes() for path in sorted(source.rglob("*.json")))
    elif zipfile.is_zipfile(source):
        with zipfile.ZipFile(source) as archive:
            texts = [archive.read(name) for name in archive.namelist() if name.endswith(".json")]
    else:
        texts = [source.read_bytes()]
    for text in texts:
        value = json.loads(text)
        yield from value if isinstance(value, list) else [value]


def hits(used: Used, found: Iterable[Mapping[str, Any]]) -> set[Hit]:
    """What is affected. A record that was withdrawn counts no more."""
    result = set()
    for record in found:
        if record.get("withdrawn"):
            continue
        for affected in record.get("affected", []):
            package = affected.get("package", {})
            ecosystem, name = package.get("ecosystem", ""), package.get("name", "")
            key = (ecosystem, canonicalize_name(name) if ecosystem == "PyPI" else name)
            for version, source in used.get(key, {}).items():
                if is_affected(version, affected, ecosystem):
                    summary = str(record.get("summary") or record.get("details", "")).splitlines() or [""]
                    fixed = ", ".join(_fixes(affected)) or "no fix yet"
                    result.add(Hit(name, version, source, record["id"], fixed, summary[0][:80]))
    return result


def _fixes(affected: Mapping[str, Any]) -> list[str]:
    events = [event for found in affected.get("ranges", []) for event in found.get("events", [])]
    return [event["fixed"] for event in events if "fixed" in event]


def is_affected(version: str, affected: Mapping[str, Any], ecosystem: str) -> bool:
    """Whether a version is listed, or lies in a range of versions."""
    if version in affected.get("versions", []):
        return True
    ranges = [found for found in affected.get("ranges", []) if found.get("type") in {"ECOSYSTEM", "SEMVER"}]
    return any(_is_in(version, found.get("events", []), ecosystem) for found in ranges)


def _is_in(version: str, events: Iterable[Mapping[str, str]], ecosystem: str) -> bool:
    """The events in order of their versions; the last one that the version has reached decides."""
    own = _order(version, ecosystem)
    inside = False
    kinds = {"introduced": 0, "fixed": 1, "last_affected": 2}
    steps = [
        (_order(value, ecosystem), kinds[kind])
        for event in events
        for kind, value in event.items()
        if kind in kinds
    ]
    for reached, kind in sorted(steps):
        if kind == 0 and own >= reached:
            inside = True
        elif (kind == 1 and own >= reached) or (kind == 2 and own > reached):
            inside = False
    return inside


def _order(version: str, ecosystem: str) -> tuple[Any, ...]:
    """What versions are compared by: the rules of Python's packages, or those of semantic versions."""
    if ecosystem == "PyPI":
        try:
            return (Version(version),)
        except InvalidVersion:
            return (Version("0"),)
    plain, _, before = version.partition("+")[0].partition("-")
    numbers = [int(part) for part in re.findall(r"\d+", plain)][:3]
    # A version with a hyphen comes before the one without; its words are compared one by one.
    words = tuple((0, int(word), "") if word.isdecimal() else (1, 0, word) for word in before.split("."))
    return (*numbers, *[0] * (3 - len(numbers)), before == "", words if before else ())


def table(found: Iterable[Hit]) -> str:
    """One line per hit, in columns."""
    rows = [
        ("package", "version", "in", "vulnerability", "fixed in", "summary"),
        *map(astuple, sorted(found)),
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )


def main(source: Path) -> int:
    if not source.exists():
        raise SystemExit(f"{source} does not exist. Name a JSON file, a folder or a zip of OSV records.")
    used, read = used_versions(), 0

    def counted() -> Iterator[dict[str, Any]]:
        nonlocal read
        for record in records(source):
            read += 1
            yield record

    found = hits(used, counted())
    if found:
        print(table(found))
    versions = sum(len(one) for one in used.values())
    print(f"{versions} versions, {read} records: {len(found)} affected", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit("Usage: python tools/vulnerabilities.py FILE (or: make vulnerabilities FILE=...)")
    sys.exit(main(Path(sys.argv[1])))
