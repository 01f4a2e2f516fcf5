"""The real SkyPilot, in an environment of its own: takes our tasks, chooses among seeded prices.

It is installed once into a cache folder (half a gigabyte); where that cannot be, these tests are skipped.
Nothing is ever launched.
"""

import ast
import asyncio
import contextlib
import fcntl
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import httpx2
import pytest

from gpubloom.providers.cloud import Fault, Launch
from gpubloom.providers.skypilot import process
from gpubloom.providers.skypilot.process import SkyPilotProcess, TimeLimits
from gpubloom.providers.skypilot.provider import Chosen, SkyPilotProvider
from gpubloom.providers.skypilot.task import task_of
from tests.errors import raises
from tests.ports import free_port
from tests.providers.services.machine import Machine

Result = TypeVar("Result")

VERSION = "0.14.1"
LAUNCH = Launch("bloom-job1-a1", "A100 80GB", 1, "echo hi", "https://bucket.example/start", disk_gb=100)
LIMITS = TimeLimits(first_answer=300, answer=300, look=0.2)
CLOUDS = ["runpod", "lambda"]

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("skypilot-itself")]

_COLUMNS = "InstanceType,AcceleratorName,AcceleratorCount,vCPUs,MemoryGiB,GpuInfo,Price,SpotPrice,Region"
_A100 = "\"{'Gpus': [{'Name': 'A100-80GB', 'Count': 1.0, 'MemoryInfo': {'SizeInMiB': 81920}}]}\""
CATALOGUES = {
    "runpod/vms.csv": f"""{_COLUMNS},AvailabilityZone
1x_A100-80GB_SECURE,A100-80GB,1.0,16.0,80.0,{_A100},1.79,1.09,US,US-TX-3
2x_A100-80GB_SECURE,A100-80GB,2.0,32.0,160.0,{_A100},3.58,2.18,US,US-TX-3
""",
    "lambda/vms.csv": f"""{_COLUMNS}
gpu_1x_a100_80gb,A100-80GB,1.0,30.0,225.0,{_A100},2.79,,us-east-1
gpu_1x_a10,A10,1.0,30.0,200.0,,1.29,,us-east-1
""",
    "common/accelerators.csv": """AcceleratorName,Clouds
A100-80GB,"['RunPod', 'Lambda']"
A10,"['Lambda']"
""",
    "common/metadata.csv": "GPU,MemoryGB,Manufacturer\nA100-80GB,80,NVIDIA\nA10,24,NVIDIA\n",
}

# What `sky check` would have found, had there been credentials.
_ENABLE = f"""
from sky import check, global_user_state, skypilot_config
from sky.clouds import CloudCapability
here = skypilot_config.get_active_workspace()
global_user_state.set_enabled_clouds({CLOUDS!r}, CloudCapability.COMPUTE, here)
global_user_state.set_allowed_clouds(check._get_workspace_allowed_clouds(here), here)
"""

_SIGNATURES = """
import inspect, json, sys
from sky import exceptions
from sky.client import sdk
from sky.schemas.api.responses import StatusResponse
print(json.dumps({
    "calls": {name: list(inspect.signature(call).parameters) for name, call in vars(sdk).items()
              if inspect.isfunction(call)},
    "exceptions": [name for name in dir(exceptions)],
    "cluster": list(StatusResponse.model_fields),
}))
"""


@pytest.fixture(scope="module")
def python() -> str:
    """A Python with SkyPilot, made once."""
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "gpubloom-tests"
    folder = cache / f"skypilot-{VERSION}-{sys.version_info[0]}.{sys.version_info[1]}"
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / "skypilot.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "complete").exists():
            for command in (
                [sys.executable, "-m", "venv", "--clear", str(folder)],
                [str(folder / "bin/pip"), "install", "--quiet", f"skypilot=={VERSION}"],
            ):
                done = subprocess.run(command, capture_output=True, text=True, check=False)
                if done.returncode != 0:
                    pytest.skip(f"SkyPilot {VERSION} cannot be installed here: {done.stderr.strip()[-300:]}")
            (folder / "complete").touch()
    return str(folder / "bin/python")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A home of its own, with our prices in it, and no way out of this machine."""
    home = tmp_path_factory.mktemp("home")
    for name, text in CATALOGUES.items():
        path = home / ".sky/catalogs/v8" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    port = free_port()
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {
            "HOME": str(home),
            "SKYPILOT_API_SERVER_LOCAL_PORT": str(port),
            "SKYPILOT_DISABLE_USAGE_COLLECTION": "1",
            "HTTP_PROXY": "http://127.0.0.1:9",
            "HTTPS_PROXY": "http://127.0.0.1:9",
            "NO_PROXY": "127.0.0.1,localhost",
        }.items():
            patch.setenv(name, value)
        yield home


@pytest.fixture(scope="module")
def server(python: str, home: Path) -> Iterator[Machine]:
    names = (
        "SKYPILOT_API_SERVER_LOCAL_PORT",
        "SKYPILOT_DISABLE_USAGE_COLLECTION",
        "HTTP_PROXY",
        "HTTPS_PROXY",
    )
    environment = {name: os.environ[name] for name in (*names, "NO_PROXY")}
    command = [str(Path(python).with_name("sky")), "api", "start", "--foreground"]
    machine = Machine(home, command, environment)
    machine.start()
    # Whoever asks before it answers starts a second server, which takes the first one's database away.
    address = f"http://127.0.0.1:{environment['SKYPILOT_API_SERVER_LOCAL_PORT']}/api"
    until(machine, lambda: httpx2.get(f"{address}/health", trust_env=False).is_success)
    # A check of its own at the start finds no credentials; what is set before its end is lost. This answers
    # at its end, whatever it found, and 404 before it is scheduled.
    of_boot = f"{address}/get?request_id=skypilot-server-on-boot-check"
    until(machine, lambda: httpx2.get(of_boot, trust_env=False, timeout=300).status_code != 404)
    until(
        machine, lambda: enable(python) and on_sky(python, lambda opened: opened.check()) == "runpod, lambda"
    )
    yield machine
    machine.vanish()


def until(machine: Machine, condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 600
    while True:
        assert machine.running, machine.text
        assert time.monotonic() < deadline, machine.text
        with contextlib.suppress(Fault, httpx2.TransportError):
            if condition():
                return
        time.sleep(1)


def enable(python: str) -> bool:
    return subprocess.run([python, "-c", _ENABLE], capture_output=True, check=False).returncode == 0


def on_sky(python: str, calls: Callable[[SkyPilotProvider], Coroutine[Any, Any, Result]]) -> Result:
    async def run() -> Result:
        opened = SkyPilotProvider(python, None, LIMITS)
        try:
            return await calls(opened)
        finally:
            await opened.close()

    return asyncio.run(run())


def ask(python: str, *questions: tuple[str, dict[str, Any]]) -> list[Any]:
    async def run() -> list[Any]:
        process = SkyPilotProcess(python, None, LIMITS)
        try:
            return [await process.ask(verb, **arguments) for verb, arguments in questions]
        finally:
            await process.close()

    return asyncio.run(run())


def test_skypilot_takes_our_tasks_for_one_machine_and_for_several(python: str, home: Path) -> None:
    launches = [
        LAUNCH,
        replace(LAUNCH, gpus=8, spot=True, region="runpod/US", packages=("torch",), longest_seconds=60),
        replace(LAUNCH, nodes=4, gpus=8),
    ]
    tasks = [task_of(launch) for launch in launches] + [task_of(launches[-1], "torchrun")]
    one, spot, several, torchrun = ask(python, *(("validate", {"task": task}) for task in tasks))
    assert (one["name"], one["nodes"], one["secrets"]) == ("bloom-job1-a1", 1, ["BLOOM_START"])
    assert one["resources"][0] == "<Cloud>({'A100-80GB': 1}, disk_size=100)"
    assert spot["resources"][0] == "RunPod([Spot], {'A100-80GB': 8}, disk_size=100)"
    assert several["nodes"] == torchrun["nodes"] == 4
    wrong = task_of(LAUNCH)
    wrong["resources"]["accelerator"] = wrong["resources"].pop("accelerators")
    with raises(Fault, code="refused") as caught:
        ask(python, ("validate", {"task": wrong}))
    assert caught.value.kind == "refused"


def test_skypilots_optimizer_chooses_the_expected_offer_from_the_prices(python: str, home: Path) -> None:
    wanted = [
        LAUNCH,
        replace(LAUNCH, gpus=2),
        replace(LAUNCH, spot=True),
        # RunPod's machines cannot be joined, so the dearer cloud is taken.
        replace(LAUNCH, nodes=2),
        replace(LAUNCH, region="lambda/us-east-1"),
        replace(LAUNCH, gpu="A10"),
    ]
    found = ask(python, *(("best", {"task": task_of(launch), "clouds": CLOUDS}) for launch in wanted))
    assert [
        (chosen["cloud"], chosen["region"], chosen["instance_type"], chosen["hourly"]) for chosen in found
    ] == [
        ("RunPod", "US", "1x_A100-80GB_SECURE", 1.79),
        ("RunPod", "US", "2x_A100-80GB_SECURE", 3.58),
        ("RunPod", "US", "1x_A100-80GB_SECURE", 1.09),
        ("Lambda", "us-east-1", "gpu_1x_a100_80gb", 2 * 2.79),
        ("Lambda", "us-east-1", "gpu_1x_a100_80gb", 2.79),
        ("Lambda", "us-east-1", "gpu_1x_a10", 1.29),
    ]
    with pytest.raises(Fault) as caught:
        ask(python, ("best", {"task": task_of(replace(LAUNCH, gpu="B200")), "clouds": CLOUDS}))
    assert caught.value.kind == "refused"


def test_skypilots_own_server_answers_everything_that_needs_no_machine(python: str, server: Machine) -> None:
    async def calls(opened: SkyPilotProvider) -> tuple[Any, ...]:
        with pytest.raises(Fault) as caught:
            await opened.submit(replace(LAUNCH, gpu="B200"))
        unknown = f"{LAUNCH.key}/unknown-request"
        await opened.cancel(unknown)
        status = await opened.status(unknown)
        return (
            await opened.best(LAUNCH), await opened.prices(), caught.value.kind,
            status.state, await opened.list(),
        )  # fmt: skip

    chosen, prices, kind, state, listed = on_sky(python, calls)
    assert chosen == Chosen("RunPod", "US", "1x_A100-80GB_SECURE", "A100-80GB", 1, 1, 1.79)
    assert {(row.provider, row.region, row.gpu, row.gpus, row.kind, row.hourly) for row in prices} == {
        ("skypilot", "runpod", "A100 80GB", 1, "on_demand", 1.79),
        ("skypilot", "runpod", "A100 80GB", 1, "spot", 1.09),
        ("skypilot", "runpod", "A100 80GB", 2, "on_demand", 3.58),
        ("skypilot", "runpod", "A100 80GB", 2, "spot", 2.18),
        ("skypilot", "lambda", "A100 80GB", 1, "on_demand", 2.79),
    }
    assert (kind, state, listed) == ("refused", "ended", [])


def test_the_fake_of_the_quick_tests_has_what_skypilot_has(python: str, home: Path) -> None:
    printed = subprocess.run([python, "-c", _SIGNATURES], capture_output=True, text=True, check=True).stdout
    real = json.loads(printed.splitlines()[-1])
    of_requests = {"ConnectionError", "Timeout", "HTTPError"}
    assert set(process._KINDS) - of_requests <= set(real["exceptions"])
    bridge = Path(process.__file__).with_name("bridge.py").read_text()
    assert set(re.findall(r'record\["(\w+)"\]', bridge)) <= set(real["cluster"])
    fake = Path(__file__).parent / "services/fake_sky/sky/client/sdk.py"
    functions = {
        call.name
        for call in ast.parse(fake.read_text()).body
        if isinstance(call, ast.FunctionDef) and not call.name.startswith("_")
    }
    called = [
        (call.func.attr, len(call.args), {str(keyword.arg) for keyword in call.keywords})
        for call in ast.walk(ast.parse(bridge))
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute)
        if ast.unparse(call.func.value) == "sdk"
    ]
    assert {name for name, _, _ in called} == functions
    for name, in_order, by_name in called:
        rest = real["calls"][name][in_order:]
        assert by_name <= set(rest), name
    first = {"launch": "task", "status": "cluster_names", "job_status": "cluster_name",
             "down": "cluster_name", "get": "request_id", "api_cancel": "request_ids"}  # fmt: skip
    assert {name: real["calls"][name][0] for name in first} == first
    assert real["calls"]["tail_logs"][:2] == ["cluster_name", "job_id"]
