"""Prepares this checkout, with nothing but the standard library: `make run` and `make test` call it.

    python tools/prepare.py run     virtual environment, packages, the built web app
    python tools/prepare.py test    the same, and what the tests need: tools, a browser, PostgreSQL

Every step leaves a stamp of what it was made from, so a second call does only what changed. A stamp is
written after its step has succeeded: an interrupted one is simply done again.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import NoReturn

ROOT = Path(__file__).resolve().parent.parent
ENVIRONMENT = ROOT / ".venv"
UI = ROOT / "ui"
STATIC = ROOT / "src/gpubloom/server/web/static"
CARD = ROOT / "src/gpubloom/traincard/card/static"
OLDEST_PYTHON = (3, 11)
OLDEST_NODE = 20
EXTRAS = {"run": "server,train,modal", "test": "server,train,dev"}
# Debian's package, and a command it brings.
# The headless shell draws no window and takes a third less processor time than the whole Chromium.
SYSTEM_PACKAGES = {
    "bubblewrap": "bwrap",
    "chromium-headless-shell": "chromium-headless-shell",
    "postgresql": "initdb",
}


def main(purpose: str) -> None:
    """Do every step that is not done yet."""
    if sys.version_info < OLDEST_PYTHON:
        stop(
            f"Python {OLDEST_PYTHON[0]}.{OLDEST_PYTHON[1]} or newer is needed; "
            f"this is {sys.version.split()[0]}."
        )
    prepare_python(purpose)
    prepare_web_app(purpose)
    if purpose == "test":
        prepare_system()


def prepare_python(purpose: str) -> None:
    """A virtual environment with this package, editable, and the versions that constraints.txt pins."""
    python = ENVIRONMENT / "bin/python"
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = fingerprint(
        repr((project.get("dependencies"), project["optional-dependencies"], project["scripts"], EXTRAS)),
        (ROOT / "constraints.txt").read_text(),
        sys.version,
        str(ROOT),
    )
    # What the tests need includes what running needs.
    if any(stamp_is(ENVIRONMENT / f".prepared-{done}", wanted) for done in {purpose, "test"}):
        return
    if not python.exists():
        say("Creating a virtual environment in .venv")
        made = subprocess.run([sys.executable, "-m", "venv", str(ENVIRONMENT)], check=False)
        if made.returncode != 0:
            shutil.rmtree(ENVIRONMENT, ignore_errors=True)
            stop("The virtual environment could not be made. On Debian: apt-get install python3-venv")
    say("Installing Python packages (a few minutes the first time)")
    run(
        [
            *(str(python), "-m", "pip", "install", "--disable-pip-version-check"),
            *("--constraint", str(ROOT / "constraints.txt"), "--editable", f"{ROOT}[{EXTRAS[purpose]}]"),
        ],
        "The Python packages could not be installed: the lines above say why.",
    )
    (ENVIRONMENT / f".prepared-{purpose}").write_text(wanted)


def prepare_web_app(purpose: str) -> None:
    """The app and the card's page, built from the sources as they are now, and the tools for that."""
    sources = fingerprint(*(part for path in web_sources() for part in (str(path), digest(path))))
    built = stamp_is(STATIC / ".built-from", sources) and (CARD / "card.js").is_file()
    tools = fingerprint((UI / "package-lock.json").read_text())
    equipped = stamp_is(UI / "node_modules/.prepared", tools)
    if built and (equipped or purpose == "run"):
        return
    npm = find_npm()
    if not equipped:
        say("Installing the web app's tools")
        run([npm, "ci", "--no-audit", "--no-fund"], "npm could not install the web app's tools.", cwd=UI)
        (UI / "node_modules/.prepared").write_text(tools)
    if not built:
        say("Building the web app")
        build_web_app(npm, sources)


def build_web_app(npm: str, sources: str) -> None:
    """Beside the files that are served, which stay until the new ones are complete."""
    failure = "The web app could not be built: the lines above say why."
    for script, served in (("build:card", CARD), ("build:app", STATIC)):
        new = UI / "dist" / script.removeprefix("build:")
        run([npm, "run", script, "--", "--outDir", str(new), "--emptyOutDir"], failure, cwd=UI)
        put_in_place(new, served)
    (STATIC / ".built-from").write_text(sources)


def put_in_place(new: Path, served: Path) -> None:
    """The page goes last and what it no longer names afterwards, so there is a whole app at any time."""
    files = sorted(
        (file for file in new.rglob("*") if file.is_file()), key=lambda file: file.name == "index.html"
    )
    kept = {served / file.relative_to(new) for file in files}
    for file in files:
        target = served / file.relative_to(new)
        target.parent.mkdir(parents=True, exist_ok=True)
        file.replace(target)
    for file in [file for file in served.rglob("*") if file.is_file() and file not in kept]:
        file.unlink()
    shutil.rmtree(new)


def prepare_system() -> None:
    """A browser, PostgreSQL and a sandbox: installed when this is root on Debian, otherwise named."""
    missing = [package for package, command in SYSTEM_PACKAGES.items() if not has_command(command)]
    if not missing:
        return
    names = " ".join(missing)
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        say(
            f"Not installed: {names}. Tests that need them will be skipped. "
            f"On Debian: sudo apt-get install {names}"
        )
        return
    say(f"Installing {names}")
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for arguments in (["update", "-qq"], ["install", "-y", "-qq", "--no-install-recommends", *missing]):
        done = subprocess.run(["apt-get", *arguments], env=environment, check=False)
        if done.returncode != 0:
            say(f"apt-get could not install {names}: tests that need them will be skipped.")
            return


def has_command(command: str) -> bool:
    """Debian keeps PostgreSQL's own commands off the PATH."""
    return shutil.which(command) is not None or any(Path("/usr/lib/postgresql").glob(f"*/bin/{command}"))


def web_sources() -> Iterable[Path]:
    """Every file the built web app depends on."""
    for path in sorted(UI.rglob("*")):
        parts = path.relative_to(UI).parts
        if path.is_file() and parts[0] not in {"node_modules", "dist"} and ".test." not in path.name:
            yield path


def find_npm() -> str:
    """npm, with a Node.js that is new enough."""
    npm, node = shutil.which("npm"), shutil.which("node")
    if npm is None or node is None:
        stop(f"Node.js {OLDEST_NODE} or newer with npm is needed to build the web app. Install it first.")
    version = subprocess.run([node, "--version"], capture_output=True, text=True, check=True).stdout.strip()
    if int(version.lstrip("v").partition(".")[0]) < OLDEST_NODE:
        stop(f"Node.js {OLDEST_NODE} or newer is needed to build the web app; this is {version}.")
    return npm


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def fingerprint(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def stamp_is(stamp: Path, wanted: str) -> bool:
    return stamp.is_file() and stamp.read_text() == wanted


def run(command: list[str], failure: str, cwd: Path = ROOT) -> None:
    if subprocess.run(command, cwd=cwd, check=False).returncode != 0:
        stop(failure)


def say(sentence: str) -> None:
    print(f"\n▸ {sentence}", flush=True)


def stop(sentence: str) -> NoReturn:
    print(f"\n✗ {sentence}", file=sys.stderr, flush=True)
    sys.exit(2)


if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1] not in EXTRAS:
        stop("Usage: python tools/prepare.py run|test")
    main(sys.argv[1])
