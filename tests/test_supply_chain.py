"""What the wheel needs is locked with hashes, listed in a bill of materials, and checked for known faults."""

import json
import re
import subprocess
import sys
import zipfile
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path
from typing import Any

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parent.parent
LOCK = ROOT / "requirements.lock"


@pytest.fixture
def lock(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    import lock

    return lock


@pytest.fixture
def vulnerabilities(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    import vulnerabilities

    return vulnerabilities


def test_the_lock_has_what_the_server_asks_for_in_the_pinned_versions(lock: Any) -> None:
    locked, pins = lock.read_lock(), lock.pinned()
    for name, (version, hashes) in locked.items():
        assert pins[name] == version, f"{name} is {version} in requirements.lock: run make lock"
        assert hashes, f"{name} has no hash"
    for requirement in lock.wanted():
        version = locked[canonicalize_name(requirement.name)][0]
        assert requirement.specifier.contains(version), f"{requirement}: run make lock"


def test_the_lock_has_what_its_packages_ask_for(lock: Any) -> None:
    locked = lock.read_lock()
    asked = [(requirement.name, requirement.extras) for requirement in lock.wanted()]
    seen = set()
    while asked:
        name, extras = asked.pop()
        if (name, frozenset(extras)) in seen:
            continue
        seen.add((name, frozenset(extras)))
        try:
            lines = requires(name) or []
        except PackageNotFoundError:
            continue
        for line in lines:
            needed = Requirement(line)
            wanted = [{"extra": extra} for extra in ("", *extras)]
            if needed.marker is None or any(needed.marker.evaluate(extra) for extra in wanted):
                assert canonicalize_name(needed.name) in locked, f"{name} needs {needed}: run make lock"
                asked.append((needed.name, needed.extras))
    assert len(seen) > 50
    assert "torch" not in locked, "the right build depends on the GPU"


def test_the_lock_names_no_addresses_and_pip_can_read_it() -> None:
    assert "://" not in LOCK.read_text()
    command = [sys.executable, "-m", "pip", "install", "--dry-run", "--no-index", "--no-deps"]
    asked = [*command, "--require-hashes", "-r", str(LOCK)]
    said = subprocess.run(asked, capture_output=True, text=True, check=False).stderr
    assert "Hashes are required" not in said
    assert "Invalid requirement" not in said


def test_a_report_of_pip_becomes_lines_with_every_hash(lock: Any) -> None:
    def report(digest: str, version: str = "1.0") -> dict[str, Any]:
        archive = {"archive_info": {"hashes": {"sha256": digest}}}
        return {"install": [{"metadata": {"name": "A_b", "version": version}, "download_info": archive}]}

    locked: dict[str, Any] = {}
    lock.add_report(locked, report("a" * 64))
    lock.add_report(locked, report("b" * 64))
    text = lock.lock_text(locked)
    assert re.search(r"^a-b==1\.0 \\\n    --hash=sha256:a{64} \\\n    --hash=sha256:b{64}\n$", text, re.M)
    with pytest.raises(SystemExit):
        lock.add_report(locked, report("c" * 64, "2.0"))


def test_the_bill_of_materials_is_valid_and_lists_python_and_npm(tmp_path: Path) -> None:
    wheel = tmp_path / "gpubloom-0.1.0-py3-none-any.whl"
    wheel.write_bytes(b"a wheel")
    command = [sys.executable, "tools/bill_of_materials.py", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    path = tmp_path / "gpubloom-0.1.0.cdx.json"
    text = path.read_text()
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    bill = json.loads(text)
    assert bill["metadata"]["component"]["name"] == "gpubloom"
    names = {component["purl"].split("@")[0] for component in bill["components"]}
    assert {"pkg:pypi/fastapi", "pkg:pypi/cryptography", "pkg:npm/react"} <= names
    assert not {"pkg:npm/vitest", "pkg:pypi/pytest"} & names, "what only tests need is not in the wheel"
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    assert path.read_text() == text, "the same wheel has the same bill"


def _record(name: str, ecosystem: str = "PyPI", **affected: Any) -> dict[str, Any]:
    package = {"ecosystem": ecosystem, "name": name}
    return {"id": "TEST-1", "summary": "made up", "affected": [{"package": package, **affected}]}


def _range(*events: dict[str, str]) -> list[dict[str, Any]]:
    return [{"type": "ECOSYSTEM", "events": list(events)}]


@pytest.mark.parametrize(
    ("version", "events", "ecosystem", "affected"),
    [
        ("2.0", [{"introduced": "0"}, {"fixed": "2.1"}], "PyPI", True),
        ("2.1", [{"introduced": "0"}, {"fixed": "2.1"}], "PyPI", False),
        ("2.10", [{"introduced": "0"}, {"fixed": "2.9"}], "PyPI", False),
        ("2.1rc1", [{"introduced": "0"}, {"fixed": "2.1"}], "PyPI", True),
        ("3.0", [{"introduced": "0"}, {"last_affected": "3.0"}], "PyPI", True),
        ("3.1", [{"introduced": "0"}, {"last_affected": "3.0"}], "PyPI", False),
        ("4.5", [{"introduced": "0"}, {"fixed": "1.0"}, {"introduced": "4.0"}], "PyPI", True),
        ("1.2.3", [{"introduced": "0"}, {"fixed": "1.2.10"}], "npm", True),
        ("1.2.10-beta.2", [{"introduced": "0"}, {"fixed": "1.2.10"}], "npm", True),
        ("1.2.10", [{"introduced": "0"}, {"fixed": "1.2.10-beta.2"}], "npm", False),
    ],
)
def test_a_range_of_versions_is_read_as_osv_defines_it(
    vulnerabilities: Any, version: str, events: list[dict[str, str]], ecosystem: str, affected: bool
) -> None:
    record = {"ranges": _range(*events)}
    assert vulnerabilities.is_affected(version, record, ecosystem) is affected


def _check(path: Path) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "tools/vulnerabilities.py", str(path)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("form", ["file", "folder", "zip"])
def test_a_version_with_a_known_vulnerability_is_a_failure_with_a_table(tmp_path: Path, form: str) -> None:
    found = [
        _record("FastAPI", ranges=_range({"introduced": "0"}, {"fixed": "999"})),
        {**_record("react", "npm", ranges=_range({"introduced": "0"})), "id": "TEST-2"},
        {**_record("alembic", ranges=_range({"introduced": "0"})), "id": "TEST-3", "withdrawn": "2026-01-01"},
        {**_record("no-such-package", versions=["1"]), "id": "TEST-4"},
    ]
    path = tmp_path / "osv.json"
    path.write_text(json.dumps(found))
    if form == "folder":
        path = tmp_path
    elif form == "zip":
        with zipfile.ZipFile(tmp_path / "all.zip", "w") as archive:
            archive.write(path, "osv.json")
        path = tmp_path / "all.zip"
    done = _check(path)
    assert done.returncode == 1, done.stderr
    assert re.search(r"^FastAPI +[\d.]+ +requirements\.lock +TEST-1 +999 +made up$", done.stdout, re.M)
    assert re.search(r"^react +[\d.]+ +package-lock\.json +TEST-2 +no fix yet", done.stdout, re.M)
    assert "TEST-3" not in done.stdout
    assert "TEST-4" not in done.stdout


def test_without_a_known_vulnerability_all_is_well(tmp_path: Path) -> None:
    path = tmp_path / "osv.json"
    path.write_text(json.dumps(_record("fastapi", versions=["0.0.1"])))
    done = _check(path)
    assert (done.returncode, done.stdout) == (0, "")
    assert "0 affected" in done.stderr
    missing = _check(tmp_path / "nothing.json")
    assert missing.returncode == 1
    assert "does not exist" in missing.stderr
