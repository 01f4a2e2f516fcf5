"""The script that prepares a rented machine, run as it is: driver, Python, apt's lock, disk, CUDA, report."""

import hashlib
import io
import platform
import re
import shlex
import stat
import sys
import threading
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from pathlib import Path
from typing import Any, get_args

import pytest

from gpubloom.errors import InputError
from gpubloom.providers.cloud import Launch
from gpubloom.providers.cloud_init import user_data_script
from gpubloom.providers.start_report import FailureCode, StartReport, parse_start_report
from gpubloom.storage.bundle import SentBundle
from tests.errors import raises
from tests.providers.launches import launch
from tests.providers.services.machine import Machine, plain_machine
from tests.waiting import wait_until

# Nobody answers there.
NO_INDEX = {"PIP_INDEX_URL": "http://127.0.0.1:9/simple"}
STARTED = 'touch "$HOME/job-started"; echo "$(date +%s) start - running" >>"$BLOOM_REPORT"; sleep 600'
# A virtual environment whose Python notes what is installed with it.
_VENV = f"""\
mkdir -p venv/bin
cat >venv/bin/python <<'END'
#!/bin/sh
if [ "$1 $2" = "-m pip" ]; then shift 2; echo "$@" >>"$HOME/installed"; exit 0; fi
if [ "$2" = "import torch" ]; then exit 1; fi
exec {sys.executable} "$@"
END
chmod +x venv/bin/python; cp venv/bin/python venv/bin/pip; cp venv/bin/python venv/bin/python3
"""
_PYTHON = f"""\
#!/bin/sh
if [ "$1 $2" = "-m venv" ]; then {_VENV} exit 0; fi
exec {sys.executable} "$@"
"""


class Reports:
    """Takes what a machine sends, by PUT; answers every GET with 403."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []
        reports = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *arguments: object) -> None:
                """Tests are quiet."""

            def do_PUT(self) -> None:
                reports.sent.append(self.rfile.read(int(self.headers["Content-Length"])))
                self._say(200)

            def do_GET(self) -> None:
                self._say(403)

            def _say(self, status: int) -> None:
                self.send_response(status)
                self.send_header("Content-Length", "0")
                self.end_headers()

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server.server_port}/report?X-Signature=Hidden-Signature"

    @property
    def newest(self) -> StartReport:
        return parse_start_report(self.sent[-1] if self.sent else b"")


@pytest.fixture
def reports() -> Iterator[Reports]:
    found = Reports()
    yield found
    found.server.shutdown()
    found.server.server_close()


@contextmanager
def booted(
    folder: Path,
    stubs: Mapping[str, str] | None = None,
    environment: Mapping[str, str] | None = None,
    wanted: Launch | None = None,
    **changes: Any,
) -> Iterator[Machine]:
    machine = plain_machine(folder, user_data_script(wanted or launch(command=STARTED, **changes)), stubs)
    machine.environment.update(environment or {})
    machine.start()
    try:
        yield machine
    finally:
        machine.vanish()


def report_of(machine: Machine) -> StartReport:
    path = machine.folder / "bloom/report"
    return parse_start_report(path.read_bytes() if path.exists() else b"")


def failure_of(machine: Machine) -> str:
    """The code with which the start failed; the job must not have begun."""
    wait_until(lambda: report_of(machine).failure)
    failure = report_of(machine).failure
    assert failure is not None
    assert failure.sentence.endswith(".")
    assert not (machine.folder / "job-started").exists()
    return failure.code


def smi(*gpus: str, code: int = 0) -> dict[str, str]:
    lines = "".join(f"echo {shlex.quote(gpu)}\n" for gpu in gpus)
    return {"nvidia-smi": f"#!/bin/sh\n{lines}exit {code}\n"}


@pytest.mark.parametrize(
    ("gpu", "index"),
    [
        ("NVIDIA H100 80GB HBM3, 580.95.05, 9.0, 81559 MiB", "cu130"),
        ("NVIDIA A10, 570.124.06, 8.6, 23028 MiB", "cu128"),
        ("NVIDIA A10, 535.183.01, 8.6, 23028 MiB", "cu126"),
        ("Tesla V100-SXM2-16GB, 580.65.06, 7.0, 16384 MiB", "cu126"),
        # A driver that does not tell the compute capability.
        ("NVIDIA A10, 550.90.07, 23028 MiB", "cu126"),
    ],
)
def test_pytorch_is_taken_for_the_driver_of_the_machine(tmp_path: Path, gpu: str, index: str) -> None:
    stubs = {"python3": _PYTHON, **smi(gpu)}
    environment = {"BLOOM_TORCH_INDEX": "https://wheels.test/whl"}
    packages = ("torch>=2.11", "transformers>=5", "torchvision")
    with booted(tmp_path / "machine", stubs, environment, packages=packages) as machine:
        wait_until(lambda: report_of(machine).is_over)
        first, second = (machine.folder / "installed").read_text().splitlines()
    assert first.endswith(f"--index-url https://wheels.test/whl/{index} -- torch>=2.11 torchvision")
    # PyPI is asked with the parts of PyTorch as well: what is there satisfies them, and stays.
    assert second.endswith("-- transformers>=5 torch>=2.11 torchvision")
    assert "--index-url" not in second


def test_a_package_that_needs_pytorch_brings_the_build_for_the_driver(tmp_path: Path) -> None:
    stubs = {"python3": _PYTHON, **smi("NVIDIA A10, 570.124.06, 8.6, 23028 MiB")}
    with booted(tmp_path / "machine", stubs, packages=("peft>=0.1", "numpy")) as machine:
        wait_until(lambda: report_of(machine).is_over)
        first, second = (machine.folder / "installed").read_text().splitlines()
    assert first.endswith("/cu128 -- torch")
    assert second.endswith("-- peft>=0.1 numpy torch")


@pytest.mark.parametrize(
    ("stubs", "gpus", "code"),
    [
        (
            smi("NVIDIA-SMI has failed because it could not communicate with the driver.", code=9),
            1,
            "broken_driver",
        ),
        (smi("NVIDIA A10, 470.256.02, 8.6, 23028 MiB"), 1, "old_driver"),
        (smi("NVIDIA A10, 580.95.05, 8.6, 23028 MiB"), 2, "too_few_gpus"),
        (
            {"df": "#!/bin/sh\necho Filesystem\necho '/dev/root 8000000 7900000 100000 99% /'\n"},
            1,
            "disk_full",
        ),
    ],
)
def test_a_machine_that_cannot_run_the_job_says_why_at_once(
    tmp_path: Path, reports: Reports, stubs: dict[str, str], gpus: int, code: str
) -> None:
    with booted(tmp_path / "machine", stubs, gpus=gpus, report_address=reports.address) as machine:
        assert failure_of(machine) == code
        wait_until(lambda: reports.newest.failure)
        assert reports.newest == report_of(machine)


def test_a_disk_that_fills_up_during_the_installation_is_named(tmp_path: Path) -> None:
    full = (
        '#!/bin/sh\nn=100000000; [ -e "$HOME/installed" ] && n=1000\necho F\necho "/dev/root 9 9 $n 9% /"\n'
    )
    with booted(tmp_path / "machine", {"python3": _PYTHON, "df": full}, packages=("numpy",)) as machine:
        assert failure_of(machine) == "disk_full"


@pytest.mark.parametrize(
    ("torch", "said"),
    [
        ("class version: cuda = None\n__version__ = '2.11.0+cpu'\n", "built without CUDA"),
        (
            "class version: cuda = '13.0'\n__version__ = '2.11.0+cu130'\n"
            "def ones(*a, **b): raise RuntimeError('CUDA driver version is insufficient\\nmore')\n",
            "RuntimeError: CUDA driver version is insufficient.",
        ),
    ],
)
def test_cuda_that_does_not_work_ends_the_start(tmp_path: Path, torch: str, said: str) -> None:
    (tmp_path / "torch.py").write_text(torch)
    environment = {"BLOOM_CUDA_CHECK": "", "PYTHONPATH": str(tmp_path)}
    with booted(tmp_path / "machine", {}, environment) as machine:
        assert failure_of(machine) == "cuda_unusable"
        failure = report_of(machine).failure
        assert failure is not None
        assert said in failure.sentence


def test_cuda_that_works_is_told(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text(
        "class version: cuda = '13.0'\n__version__ = '2.11.0'\n"
        "class _One:\n    def sum(self): return self\n    def item(self): return 8.0\n"
        "def ones(*a, **b): return _One()\n"
        "class cuda:\n    get_device_capability = staticmethod(lambda: (9, 0))\n"
        "    get_device_name = staticmethod(lambda: 'H100')\n"
    )
    environment = {"BLOOM_CUDA_CHECK": "", "PYTHONPATH": str(tmp_path)}
    with booted(tmp_path / "machine", {}, environment) as machine:
        wait_until(lambda: report_of(machine).is_over)
        told = [line.text for line in report_of(machine).lines]
    assert "PyTorch 2.11.0 computes on H100 (9.0)" in told


# Python 3.10 without pip, as in Ubuntu 22.04.
_OLD_PYTHON = f"""\
#!/bin/sh
case "$*" in
  --version) echo "Python 3.10.12" ;;
  *version_info*) exit 1 ;;
  -m*) exit 1 ;;
  *) exec {sys.executable} "$@" ;;
esac
"""


def test_an_older_python_is_left_alone_and_a_newer_one_is_brought(tmp_path: Path) -> None:
    uv = f'#!/bin/sh\necho "$@" >>"$HOME/uv"\n[ "$1" = venv ] || exit 0\n{_VENV}rm venv/bin/pip\n'
    stubs = {"python3": _OLD_PYTHON, "uv": uv}
    command = f'command -v python3 >"$HOME/which"; {STARTED}'
    with booted(tmp_path / "machine", stubs, wanted=launch(command=command, packages=("numpy",))) as machine:
        wait_until(lambda: report_of(machine).is_over)
        calls = (machine.folder / "uv").read_text().splitlines()
        which = (machine.folder / "which").read_text().strip()
        told = [line.text for line in report_of(machine).lines]
    assert calls[0] == "venv --quiet --python >=3.11,<3.13 venv"
    assert calls[1] == "pip install --quiet --python venv/bin/python -- numpy"
    assert which == str(machine.folder / "bloom/venv/bin/python3")
    assert "this image has Python 3.10.12: bringing a newer one with uv" in told


def _wheel(version: str, uv: str) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as wheel:
        wheel.writestr(f"uv-{version}.data/scripts/uv", uv)
    return content.getvalue()


@pytest.mark.parametrize("damaged", [False, True])
def test_uv_comes_from_the_package_index_where_there_is_no_pip(tmp_path: Path, damaged: bool) -> None:
    noted = f'#!/bin/sh\necho "$UV_DEFAULT_INDEX" >>"$HOME/index"\n[ "$1" = venv ] || exit 0\n{_VENV}'
    folder = tmp_path / "index"
    (folder / "simple/uv").mkdir(parents=True)
    links = ""
    for version in ("0.9.3", "0.13.7", "0.14.0rc1"):
        name = f"uv-{version}-py3-none-manylinux_2_17_{platform.machine()}.whl"
        wheel = _wheel(version, noted if version == "0.13.7" else "#!/bin/sh\nexit 1\n")
        (folder / name).write_bytes(wheel)
        digest = hashlib.sha256(b"" if damaged else wheel).hexdigest()
        links += f'<a href="../../{name}#sha256={digest}">{name}</a>\n'
    (folder / "simple/uv/index.html").write_text(links)
    handler = partial(QuietFiles, directory=str(folder))
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    index = f"http://127.0.0.1:{server.server_port}/simple"
    environment = {"PIP_INDEX_URL": index, "UV_DEFAULT_INDEX": index}
    stubs = {"python3": _OLD_PYTHON.replace("  -m*)", "  *pip|-m*)"), "curl": "#!/bin/sh\nexit 7\n"}
    try:
        with booted(tmp_path / "machine", stubs, environment, packages=("numpy",)) as machine:
            if damaged:
                assert failure_of(machine) == "no_python"
                told = [line.text for line in report_of(machine).lines]
                assert "the package index sent a damaged uv" in told
            else:
                wait_until(lambda: report_of(machine).is_over)
                assert set((machine.folder / "index").read_text().splitlines()) == {index}
    finally:
        server.shutdown()
        server.server_close()


class QuietFiles(SimpleHTTPRequestHandler):
    def log_message(self, *arguments: object) -> None:
        """Tests are quiet."""


def test_mirrors_of_the_server_reach_its_machines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BLOOM_PACKAGE_INDEX", "https://mirror.test/simple")
    monkeypatch.setenv("BLOOM_PYTHON_BUILDS", "https://mirror.test/it's here.json")
    command = (
        'printf "%s\\n" "$PIP_INDEX_URL" "$UV_DEFAULT_INDEX" "$UV_PYTHON_DOWNLOADS_JSON_URL" '
        f'"$BLOOM_TORCH_INDEX" >"$HOME/mirrors"; {STARTED}'
    )
    with booted(tmp_path / "machine", wanted=launch(command=command)) as machine:
        wait_until(lambda: report_of(machine).is_over)
        told = (machine.folder / "mirrors").read_text().splitlines()
    index = "https://mirror.test/simple"
    assert told == [index, index, "https://mirror.test/it's here.json", ""]
    monkeypatch.setenv("BLOOM_TORCH_INDEX", "https://mirror.test\nrm -rf /")
    with raises(InputError, code="invalid_argument"):
        user_data_script(launch())


def _apt(refusals: int) -> str:
    """An apt-get whose lock another program holds for so many calls."""
    return f"""\
#!/bin/sh
echo "$@" >>"$HOME/apt"
if [ "$(wc -l <"$HOME/apt")" -le {refusals} ]; then
  echo "E: Could not get lock /var/lib/dpkg/lock-frontend. It is held by process 812 (unattended-upgr)" >&2
  exit 100
fi
[ "$1" = install ] && touch "$HOME/has-venv"
exit 0
"""


# Debian's: venv works once a package is installed.
_PYTHON_WITHOUT_VENV = f"""\
#!/bin/sh
if [ "$1 $2" = "-m venv" ]; then [ -e "$HOME/has-venv" ] || exit 1; {_VENV} exit 0; fi
[ "$1" = -m ] && exit 1
exec {sys.executable} "$@"
"""


@pytest.mark.long
def test_a_lock_of_apt_is_waited_for(tmp_path: Path) -> None:
    stubs = {"python3": _PYTHON_WITHOUT_VENV, "curl": "#!/bin/sh\nexit 7\n", "apt-get": _apt(2)}
    with booted(tmp_path / "machine", stubs, NO_INDEX, packages=("numpy",)) as machine:
        wait_until(lambda: report_of(machine).is_over)
        calls = (machine.folder / "apt").read_text().splitlines()
        assert "waiting for the lock of apt-get, which another program holds" in (
            line.text for line in report_of(machine).lines
        )
    assert calls == ["update -q"] * 3 + ["install -q -y python3-venv"]


@pytest.mark.long
def test_a_lock_that_is_never_released_ends_the_start(tmp_path: Path) -> None:
    stubs = {"python3": _PYTHON_WITHOUT_VENV, "curl": "#!/bin/sh\nexit 7\n", "apt-get": _apt(1000)}
    environment = {"BLOOM_APT_WAIT": "1", **NO_INDEX}
    with booted(tmp_path / "machine", stubs, environment, packages=("numpy",)) as machine:
        assert failure_of(machine) == "apt_locked"


@pytest.mark.parametrize("curl", ["", "#!/bin/sh\nexit 127\n"])
def test_every_stage_is_sent_while_it_happens(tmp_path: Path, reports: Reports, curl: str) -> None:
    # The job says nothing: the script itself has to send the stages before it.
    command = 'touch "$HOME/job-started"; sleep 600'
    stubs = {"curl": curl} if curl else {}
    wanted = launch(command=command, report_address=reports.address)
    with booted(tmp_path / "machine", stubs, wanted=wanted) as machine:
        wait_until(lambda: (machine.folder / "job-started").exists())
        stages = report_of(machine).stages
        assert [(stage.name, stage.state) for stage in stages] == [("machine", "done"), ("packages", "done")]
        assert stages[0].text == "driver 580.95.05, cu130"
        wait_until(lambda: reports.sent)
        mode = (machine.folder / "bloom/report-address").stat().st_mode
        assert stat.S_IMODE(mode) == 0o600


def test_an_address_that_has_expired_is_named(tmp_path: Path, reports: Reports) -> None:
    expired = reports.address.replace("/report", "/start")
    wanted = launch(
        command=SentBundle(expired, "0" * 64).command,
        start_address=expired,
        report_address=reports.address,
    )
    with booted(tmp_path / "machine", wanted=wanted) as machine:
        assert failure_of(machine) == "address_expired"
        wait_until(lambda: reports.newest.failure)


def test_every_reason_of_the_script_is_known() -> None:
    script = files("gpubloom.providers").joinpath("bootstrap.sh").read_text()
    said = set(re.findall(r"\bfail ([a-z]+_?[a-z_]*) \"", script))
    assert {"disk_full", "broken_driver", "restarted"} <= said <= set(get_args(FailureCode))


def test_a_report_of_a_stranger_is_read_with_care() -> None:
    rows = [
        b"not a line",
        b"1700000000 kitchen + no stage of ours",
        b"1700000000 machine + up\x1b[31m\x00 red",
        b"1700000009 machine - driver 580",
        b"1700000010 packages ! Not a code",
        b"1700000011 packages . " + b"x" * 5000,
        *(b"1700000012 packages . line %d" % number for number in range(100)),
    ]
    found = parse_start_report(b"\n".join(rows))
    machine, packages = found.stages
    assert (machine.state, machine.began, machine.ended) == ("done", 1700000000, 1700000009)
    assert (packages.state, packages.text) == ("failed", "")
    assert found.failure is not None
    assert found.failure.code == "start_failed"
    assert len(found.lines) == 40
    assert found.lines[-1].text == "line 99"
    assert all(line.text.isprintable() and len(line.text) <= 400 for line in found.lines)
    assert parse_start_report(b"\xff\xfe" * 10).stages == ()
