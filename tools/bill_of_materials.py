"""Writes the bill of materials of the wheel in dist/, as CycloneDX JSON beside it.

    python tools/bill_of_materials.py dist

Listed are the Python packages of requirements.lock and the npm packages that the built web app contains.
The same sources give the same file: its serial number comes from its content, and its time from the wheel.
"""

import base64
import json
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, metadata
from pathlib import Path
from uuid import NAMESPACE_URL, uuid5

from cyclonedx.factory.license import LicenseFactory
from cyclonedx.model import HashAlgorithm, HashType
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from lock import ROOT, read_lock
from packageurl import PackageURL

_LONGEST_LICENSE = 200


def python_packages() -> Iterator[Component]:
    """What is locked. The hashes of their files are in requirements.lock: a package has several files."""
    for name, (version, _) in read_lock().items():
        yield _component("pypi", None, name, version, _license_of(name))


def npm_packages(lock: Path = ROOT / "ui/package-lock.json") -> Iterator[Component]:
    """What the web app is made from; tools that only build or test it are not in the wheel."""
    for path, package in json.loads(lock.read_text())["packages"].items():
        if not path or package.get("dev") or package.get("link"):
            continue
        group, _, name = path.rpartition("node_modules/")[2].rpartition("/")
        component = _component("npm", group or None, name, package["version"], package.get("license"))
        kind, _, digest = package.get("integrity", "").partition("-")
        if kind == "sha512":
            content = base64.b64decode(digest).hex()
            component.hashes.add(HashType(alg=HashAlgorithm.SHA_512, content=content))
        yield component


def _component(kind: str, group: str | None, name: str, version: str, license_: str | None) -> Component:
    url = PackageURL(type=kind, namespace=group, name=name, version=version)
    found = [LicenseFactory().make_from_string(license_)] if license_ else []
    return Component(
        type=ComponentType.LIBRARY,
        group=group,
        name=name,
        version=version,
        purl=url,
        bom_ref=str(url),
        licenses=found,
    )


def _license_of(name: str) -> str | None:
    """As the installed package states it; some put the whole text there."""
    try:
        facts = metadata(name)
    except PackageNotFoundError:
        return None
    said = [facts[field] for field in ("License-Expression", "License") if field in facts]
    return next((one for one in said if one and len(one) < _LONGEST_LICENSE and "\n" not in one), None)


def bill_of(wheel: Path) -> Bom:
    """The bill of one wheel."""
    name, version = wheel.name.split("-")[:2]
    product = _component("pypi", None, name, version, "Apache-2.0")
    product.type = ComponentType.APPLICATION
    digest = sha256(wheel.read_bytes()).hexdigest()
    product.hashes.add(HashType(alg=HashAlgorithm.SHA_256, content=digest))
    # The same package at the same version may lie in several folders of npm's tree.
    parts = {str(part.purl): part for part in (*python_packages(), *npm_packages())}
    bom = Bom(components=parts.values(), serial_number=uuid5(NAMESPACE_URL, f"{digest} {sorted(parts)}"))
    bom.metadata.component = product
    bom.metadata.timestamp = datetime.fromtimestamp(int(wheel.stat().st_mtime), UTC)
    bom.register_dependency(product, parts.values())
    return bom


def main(folder: Path) -> None:
    wheels = sorted(folder.glob("*.whl"))
    if not wheels:
        raise SystemExit(f"There is no wheel in {folder}. Run: make wheel")
    for wheel in wheels:
        path = folder / f"{'-'.join(wheel.name.split('-')[:2])}.cdx.json"
        path.write_text(JsonV1Dot6(bill_of(wheel)).output_as_string(indent=2) + "\n")
        print(path)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
