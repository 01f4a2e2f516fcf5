"""What a bare machine is made of, kept between runs in a cache folder under the digest of its recipe.

Three things: a root file system of Debian 11 (Python 3.9, no pip, no curl, no compiler), a newer Python that
runs there (built from Debian's source, in the form that uv unpacks), and the wheels that a package index
offers. They come from the mirror that apt uses on this machine and from wherever its pip downloads; where one
of them is missing, the tests are skipped with the reason.
"""

import functools
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path

import pytest

from gpubloom.worker.launcher import requirements_of

# The oldest Debian whose C library runs the wheels of today. Its Python is 3.9.
SUITE = "bullseye"
# Debian's release with the source of the Python that is brought; its wheels are downloaded.
PYTHON, PYTHON_SUITE = "3.11", "bookworm"
# Beside what every Debian has. The second image has no Python at all, as images with nothing but CUDA.
# The third one has an SSH server, as machines that people sign in to.
IMAGES = {
    "old_python": "ca-certificates,python3",
    "no_python": "ca-certificates",
    "ssh_server": "ca-certificates,python3,openssh-server",
}

_BUILD = Path(__file__).with_name("build_python.sh")
# What the C library of the root allows.
_PLATFORMS = (
    *("manylinux_2_28_x86_64", "manylinux_2_27_x86_64", "manylinux_2_24_x86_64", "manylinux_2_17_x86_64"),
    *("manylinux2014_x86_64", "manylinux2010_x86_64", "manylinux1_x86_64"),
)


def root(image: str = "old_python") -> Path:
    """A folder with the root file system of an image; mounted below others, never changed."""
    made = _made(f"{SUITE} {IMAGES[image]}", functools.partial(_debootstrap, IMAGES[image]))
    return made / "root"


def python_archive() -> Path:
    """A gzipped tar of a Python that runs in the root, wherever it is unpacked."""
    return _made(f"{SUITE} {PYTHON} {_BUILD.read_text()}", _build_python) / "python.tar.gz"


def wheels() -> Path:
    """A folder with uv, PyTorch and everything that the template and a training with the engine import."""
    engine = [each for each in requirements_of("train") if not each.startswith("torch")]
    wanted = ["uv", f"torch=={version('torch').partition('+')[0]}", "tiktoken", *engine]
    return _made(" ".join([PYTHON, *wanted, *_PLATFORMS]), functools.partial(_download, wanted)) / "wheels"


@functools.cache
def apt_mirror() -> str:
    """The first mirror of apt's own configuration that has the suite."""
    listed = subprocess.run(
        ["apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages"],
        capture_output=True,
        text=True,
        check=False,
    )
    with tempfile.TemporaryDirectory() as folder:
        for address in dict.fromkeys(listed.stdout.split()):
            if fetch(f"{address.rstrip('/')}/dists/{SUITE}/Release", Path(folder, "Release")):
                return address.rstrip("/")
    pytest.skip(f"no mirror in apt's configuration has Debian {SUITE}, or none answers")


def fetch(address: str, target: Path) -> bool:
    """Downloads a file as apt does; whether it is there. Tests themselves reach the loopback address only."""
    command = ["/usr/lib/apt/apt-helper", "download-file", address, str(target)]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def skip_where_impossible() -> None:
    """Says in one sentence why no bare machine can be made here."""
    if sys.platform != "linux" or platform.machine() != "x86_64":
        pytest.skip("bare machines are made of Debian's packages for Linux on x86-64")
    if os.geteuid() != 0:
        pytest.skip("only root can make and enter the file system of a bare machine")
    for program in ("debootstrap", "apt-get", "unshare", "ip", "mkfs.ext4"):
        if shutil.which(program) is None:
            pytest.skip(f"the program {program} is missing, which makes or enters a bare machine")
    entering = ["unshare", "--mount", "--net", "--pid", "--fork", "true"]
    refused = subprocess.run(entering, capture_output=True, text=True, check=False)
    if refused.returncode != 0:
        pytest.skip(f"new namespaces are not allowed here: {refused.stderr.strip()}")


def _made(recipe: str, make: Callable[[Path], None]) -> Path:
    """The folder that `make` fills, made once for each recipe."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gpubloom-tests"
    target = cache / hashlib.sha256(recipe.encode()).hexdigest()[:16]
    if not target.exists():
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache, prefix="making-") as temporary:
            folder = Path(temporary, "made")
            folder.mkdir()
            make(folder)
            folder.rename(target)
    return target


def _debootstrap(packages: str, folder: Path) -> None:
    root = folder / "root"
    _run("debootstrap", "--variant=minbase", f"--include={packages}", SUITE, str(root), apt_mirror())
    # Machines have their own.
    (root / "etc/hosts").write_text("127.0.0.1 localhost\n")
    (root / "etc/resolv.conf").write_text("")
    shutil.rmtree(root / "var/cache/apt/archives")


def _build_python(folder: Path) -> None:
    script = f"""\
set -eu
mkdir upper work root
mount -t overlay overlay -o lowerdir={root()},upperdir=upper,workdir=work root
mount -t proc proc root/proc
mount --bind /dev root/dev
mkdir root/result
mount --bind . root/result
cp /etc/resolv.conf root/etc/resolv.conf
cp {_BUILD} root/build.sh
exec chroot root env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root \
  sh /build.sh {PYTHON} {apt_mirror()} {PYTHON_SUITE}
"""
    _run("unshare", "--mount", "--pid", "--fork", "sh", "-c", script, folder=folder)
    for used in ("upper", "work", "root"):
        shutil.rmtree(folder / used)


def _download(wanted: Sequence[str], folder: Path) -> None:
    platforms = [f"--platform={name}" for name in _PLATFORMS]
    _run(
        *(sys.executable, "-m", "pip", "download", "--quiet", "--dest", str(folder / "wheels")),
        *("--only-binary=:all:", f"--python-version={PYTHON}", "--implementation=cp", *platforms, *wanted),
    )


def _run(*command: str, folder: Path | None = None) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip().splitlines()
        pytest.skip(f"{Path(command[0]).name} could not make a bare machine: {' '.join(said[-2:])}")
