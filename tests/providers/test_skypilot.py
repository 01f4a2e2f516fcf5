"""SkyPilot through its own Python: what it is asked, one cluster per key, and what it says in our words."""

import asyncio
import json
import os
import subprocess
import time
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import psutil
import pytest

from gpubloom.offers import shipped_prices
from gpubloom.providers.cloud import Fault, Instance, Launch
from gpubloom.providers.registry import provider_spec
from gpubloom.providers.skypilot import bridge as skypilot_bridge
from gpubloom.providers.skypilot.process import TimeLimits
from gpubloom.providers.skypilot.provider import PROVIDER, SkyPilotProvider
from gpubloom.providers.skypilot.task import region_of, task_of
from gpubloom.storage import Store
from tests.errors import raises
from tests.providers.services.sky_service import SkyService
from tests.storage.instances import Instance as RentedRun

Result = TypeVar("Result")
Calls = Callable[[SkyPilotProvider], Coroutine[Any, Any, Result]]

ADDRESS = "https://bucket.example/start?signature=Hidden-Start-Signature"
TOKEN = "sky_Hidden-Service-Token"
LIMITS = TimeLimits(first_answer=30, answer=30, launch=0.5, down=5, look=0.1)
KEY = "bloom-job1-a1"

pytestmark = pytest.mark.xdist_group("skypilot")


@pytest.fixture
def service() -> Iterator[SkyService]:
    with SkyService() as service:
        yield service


def on_sky(
    service: SkyService, calls: Calls[Result], token: str | None = None, limits: TimeLimits = LIMITS
) -> Result:
    async def run() -> Result:
        opened = SkyPilotProvider(service.python, token, limits)
        try:
            return await calls(opened)
        finally:
            await opened.close()

    return asyncio.run(run())


def launch(command: str = "echo on; sleep 60", **values: Any) -> Launch:
    return Launch(
        **{"key": KEY, "gpu": "A100 80GB", "gpus": 2, "command": command, "start_address": ADDRESS, **values}
    )


async def until_ended(opened: SkyPilotProvider, instance_id: str) -> Instance:
    deadline = time.monotonic() + 120
    while (found := await opened.status(instance_id)).state == "running":
        assert time.monotonic() < deadline
        await asyncio.sleep(0.05)
    return found


def test_a_job_runs_on_a_cluster_that_is_asked_for_as_it_should_be(service: SkyService) -> None:
    async def calls(opened: SkyPilotProvider) -> tuple[Instance, Instance]:
        started = await opened.submit(
            launch('echo "$BLOOM_START"; exit 3', region="runpod", packages=("torch",), longest_seconds=7200)
        )
        return started, await until_ended(opened, started.id)

    started, ended = on_sky(service, calls)
    assert (started.key, started.region) == (KEY, "runpod/us")
    assert started.billed_from is not None
    assert (ended.state, ended.detail) == ("ended", "The command ended: FAILED.")
    (output,) = (service.folder / "clusters").glob("*/output")
    assert output.read_text() == f"{ADDRESS}\n"
    (asked,) = service.asked("launch")
    # Given back by itself when the task has ended, should we be away by then.
    assert (asked["name"], asked["down"], asked["idle"]) == (KEY, True, 1)
    assert asked["task"]["num_nodes"] == 1
    assert asked["task"]["resources"] == {
        "accelerators": {"A100-80GB": 2, "A100-80GB-SXM": 2},
        "disk_size": 50,
        "use_spot": False,
        "infra": "runpod",
    }
    assert asked["task"]["setup"].endswith("-m pip install --quiet --no-input -- torch\n")
    assert "timeout --signal=TERM --kill-after=300 7200 sh -c" in asked["task"]["run"]


def test_one_key_is_one_cluster_whoever_asks_and_however_often(service: SkyService) -> None:
    async def twice(opened: SkyPilotProvider) -> list[str]:
        return [(await opened.submit(launch())).key, (await opened.submit(launch())).key]

    assert on_sky(service, twice) == [KEY, KEY]
    assert on_sky(service, lambda opened: opened.submit(launch())).state == "running"
    assert len(service.asked("launch")) == 1


def test_a_process_that_dies_after_the_start_leads_to_the_cluster_that_was_started(
    service: SkyService,
) -> None:
    service.fail_next("cut")
    assert on_sky(service, lambda opened: opened.submit(launch())).state == "running"
    assert len(service.asked("launch")) == 1


def test_skypilots_process_ends_with_us_even_in_the_middle_of_an_answer(service: SkyService) -> None:
    service.fail_next("hang", "enabled_clouds")
    bridge = subprocess.Popen(
        [service.python, skypilot_bridge.__file__], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL
    )
    assert bridge.stdin is not None
    bridge.stdin.write(b'{"id": 1, "verb": "clouds", "arguments": {}}\n')
    bridge.stdin.flush()
    while not (service.folder / "asked.jsonl").exists():
        assert bridge.poll() is None
        time.sleep(0.01)
    # As the kernel does when we are killed.
    bridge.stdin.close()
    assert bridge.wait(120) == 0


def test_a_machine_that_is_still_being_made_is_starting_and_is_not_asked_for_again(
    service: SkyService,
) -> None:
    service.fail_next("queued")

    async def calls(opened: SkyPilotProvider) -> tuple[Instance, list[Instance], Instance]:
        started = await opened.submit(launch())
        listed = await opened.list()
        await opened.cancel(started.id)
        return started, listed, await opened.status(started.id)

    started, listed, ended = on_sky(service, calls)
    assert (started.state, [instance.state for instance in listed], ended.state) == (
        "starting",
        ["starting"],
        "ended",
    )
    assert [instance.key for instance in listed] == [KEY]
    assert len(service.asked("launch")) == 1


@pytest.mark.parametrize(
    ("trouble", "kind"),
    [
        ("no_capacity", "no_capacity"),
        ("quota", "quota"),
        ("nowhere", "refused"),
        ("bad_credentials", "bad_credentials"),
        ("unavailable", "unavailable"),
        ("hang", "timed_out"),
    ],
)
def test_what_skypilot_cannot_do_is_named_and_leaves_nothing_running(
    service: SkyService, trouble: Any, kind: str
) -> None:
    service.fail_next(trouble)
    limits = replace(LIMITS, answer=1.5) if trouble == "hang" else LIMITS
    with pytest.raises(Fault) as caught:
        on_sky(service, lambda opened: opened.submit(launch()), limits=limits)
    assert caught.value.kind == kind
    assert caught.value.uncertain == (kind in ("unavailable", "timed_out"))
    assert service.running == []


def test_a_cluster_that_its_cloud_took_away_is_lost(service: SkyService) -> None:
    async def calls(opened: SkyPilotProvider) -> tuple[str, str]:
        first = await opened.submit(launch())
        spot = await opened.submit(launch(key="bloom-job2-a1", spot=True))
        service.preempt(first.key, seen=True)
        service.preempt(spot.key, seen=False)
        return (await opened.status(first.id)).state, (await opened.status(spot.id)).state

    assert on_sky(service, calls) == ("lost", "lost")


@pytest.mark.parametrize(("status", "state"), [("PENDING", "starting"), ("AUTOSTOPPING", "ended")])
def test_a_cluster_that_waits_for_its_turn_or_ends_by_itself_is_not_lost(
    service: SkyService, status: str, state: str
) -> None:
    async def calls(opened: SkyPilotProvider) -> str:
        started = await opened.submit(launch())
        (service.folder / "clusters" / started.key / "status").write_text(status)
        return (await opened.status(started.id)).state

    assert on_sky(service, calls) == state


def test_what_runs_is_listed_and_ended_and_nothing_else_is_touched(service: SkyService) -> None:
    (service.folder / "clusters" / "somebodys-own").mkdir()

    async def calls(opened: SkyPilotProvider) -> list[Instance]:
        for number in (1, 2):
            await opened.submit(launch(key=f"bloom-job{number}-a1"))
        listed = await opened.list()
        for instance in listed:
            await opened.cancel(instance.id)
            await opened.cancel(instance.id)
        return listed

    listed = on_sky(service, calls)
    assert [(found.key, found.state) for found in listed] == [
        ("bloom-job1-a1", "running"),
        ("bloom-job2-a1", "running"),
    ]
    assert service.running == ["somebodys-own"]


def test_credentials_are_checked_and_a_skypilot_without_clouds_says_what_to_do(service: SkyService) -> None:
    assert on_sky(service, lambda opened: opened.check(), token=TOKEN) == "ada: runpod, lambda"
    assert [asked["token"] for asked in service.asked("enabled_clouds")] == [True]
    service.fail_next("bad_credentials", "enabled_clouds")
    with pytest.raises(Fault) as caught:
        on_sky(service, lambda opened: opened.check(), token=TOKEN)
    assert caught.value.kind == "bad_credentials"
    service.offer([], {})
    with raises(Fault, code="bad_credentials"):
        on_sky(service, lambda opened: opened.check())


def test_catalogue_prices_become_rows_that_the_price_table_takes(service: SkyService) -> None:
    def machine(
        cloud: str, gpu: str, gpus: float, price: float | None, spot: float | None, region: str = "x"
    ) -> dict[str, Any]:
        return {"cloud": cloud, "region": region, "accelerator_name": gpu, "accelerator_count": gpus,
                "device_memory": 80.0, "price": price, "spot_price": spot}  # fmt: skip

    service.offer(
        ["aws", "runpod"],
        {
            "A100-80GB": [
                machine("AWS", "A100-80GB", 8, 40.0, 16.0, "us-east-1"),
                machine("AWS", "A100-80GB", 8, 38.0, None, "us-west-2"),
                machine("RunPod", "A100-80GB", 1, 1.79, None),
                machine("AWS", "A100-80GB", 0.5, 2.0, None),
            ]
        },
    )
    rows = on_sky(service, lambda opened: opened.prices())
    assert [(row.provider, row.gpu, row.gpus, row.kind, row.hourly, row.region) for row in rows] == [
        ("skypilot", "A100 80GB", 8, "on_demand", 38.0, "aws"),
        ("skypilot", "A100 80GB", 8, "spot", 16.0, "aws"),
        ("skypilot", "A100 80GB", 1, "on_demand", 1.79, "runpod"),
    ]
    assert set(rows) <= set(shipped_prices().with_rows(rows).rows)


def test_the_agent_runs_a_script_on_a_cluster_and_everything_comes_back_through_the_bucket(
    service: SkyService, store: Store, tmp_path: Path
) -> None:
    there = RentedRun(
        store,
        tmp_path,
        {"train.py": "import os; os.mkdir('model'); open('model/w', 'w').write('weights')"},
    )
    sent = there.send()

    async def calls(opened: SkyPilotProvider) -> Instance:
        started = await opened.submit(launch(sent.command, start_address=sent.address, longest_seconds=600))
        await asyncio.to_thread(there.until, "ended")
        return await until_ended(opened, started.id)

    assert on_sky(service, calls).detail == "The command ended: SUCCEEDED."
    assert (there.run_dir / "model/w").read_text() == "weights"


def test_no_secret_is_in_any_file_error_task_or_process_list(
    service: SkyService, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("BLOOM_SECRET", "Hidden-Bloom-Secret")
    told: list[str] = [repr(launch()), json.dumps(task_of(launch()))]

    async def calls(opened: SkyPilotProvider) -> None:
        started = await opened.submit(launch())
        told.append(repr((opened, started)))
        for process in psutil.process_iter(["cmdline"]):
            told.append(" ".join(process.info["cmdline"] or ()))
        # Other tests of this process may have left a database server running beside it.
        children = psutil.Process().children()
        (bridge,) = (child for child in children if skypilot_bridge.__file__ in child.cmdline())
        assert "Hidden-Bloom-Secret" not in bridge.environ().values()
        for trouble in ("nowhere", "unavailable", "cut"):
            service.fail_next(trouble)  # type: ignore[arg-type]
            key = f"bloom-{trouble}-a1"
            if trouble == "cut":
                await opened.submit(launch(key=key))
            else:
                with pytest.raises(Fault) as caught:
                    await opened.submit(launch(key=key))
                told.append(f"{caught.value!r} {caught.value.__context__!r}")

    on_sky(service, calls, token=TOKEN)
    told.append(caplog.text)
    told += [path.read_text(errors="replace") for path in service.folder.rglob("*") if path.is_file()]
    for secret in (ADDRESS, "Hidden-Start-Signature", TOKEN):
        assert not [text for text in told if secret in text]


def test_people_cannot_rent_through_a_skypilot_that_the_operator_did_not_lend(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    kind = provider_spec("skypilot")
    monkeypatch.delenv("BLOOM_SKYPILOT_PYTHON", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "is not installed on the server" in str(kind.why_not())
    (tmp_path / "sky").touch(mode=0o755)
    assert f"set BLOOM_SKYPILOT_PYTHON={tmp_path / 'python'}" in str(kind.why_not())
    monkeypatch.setenv("BLOOM_SKYPILOT_PYTHON", str(tmp_path / "python"))
    assert kind.why_not() is None

    async def check() -> str:
        return await kind.open({}).check()

    with raises(Fault, code="refused"):
        asyncio.run(check())
    assert PROVIDER.capabilities.several_nodes.can


def test_several_machines_are_joined_by_the_variables_that_skypilot_sets(tmp_path: Path) -> None:
    """Both ways, with a `ray` that writes down what it is told."""
    (tmp_path / "ray").write_text(
        '#!/bin/sh\necho "ray $*" >>"$HOME/said"\ncase "$*" in *--head*) exec sleep 60;; esac\n'
    )
    (tmp_path / "ray").chmod(0o700)
    (tmp_path / "ray.py").write_text(
        "def init(**_): pass\ndef shutdown(): pass\ndef nodes(): return [{'Alive': True}] * 2\n"
    )

    def run(join: Any, rank: int) -> tuple[str, str]:
        task = task_of(launch("env | sort | grep -E 'PET_|RAY_ADDRESS'", nodes=2), join)
        (tmp_path / "said").write_text("")
        done = subprocess.run(
            ["bash", "-c", task["run"]],
            env={
                "PATH": f"{tmp_path}:{os.environ['PATH']}", "HOME": str(tmp_path),
                "PYTHONPATH": str(tmp_path),
                "SKYPILOT_NODE_IPS": "10.0.0.1\n10.0.0.2", "SKYPILOT_NODE_RANK": str(rank),
                "SKYPILOT_NUM_NODES": "2", "SKYPILOT_NUM_GPUS_PER_NODE": "8",
            },
            capture_output=True, text=True, timeout=120, check=True,
        )  # fmt: skip
        return done.stdout, (tmp_path / "said").read_text()

    for rank in (0, 1):
        assert run("torchrun", rank)[0].split() == [
            "PET_MASTER_ADDR=10.0.0.1",
            "PET_MASTER_PORT=29500",
            "PET_NNODES=2",
            f"PET_NODE_RANK={rank}",
            "PET_NPROC_PER_NODE=8",
        ]
    printed, said = run("ray", 0)
    assert printed == "RAY_ADDRESS=10.0.0.1:6379\n"
    assert said.startswith("ray start --head --port=6379 --num-gpus=8")
    printed, said = run("ray", 1)
    assert (printed, said) == ("", "ray start --address=10.0.0.1:6379 --num-gpus=8 --block\n")
    assert task_of(launch(nodes=2))["num_nodes"] == 2
    assert "ray[default]" in task_of(launch(nodes=2))["setup"]


def test_an_offer_of_a_cloud_behind_skypilot_names_where_to_launch() -> None:
    assert region_of("runpod") == "runpod"
    assert region_of("runpod", "us") == "runpod"
    assert region_of("digitalocean", "nyc2") == "do/nyc2"
    assert region_of("skypilot", "aws/us-east-1") == "aws/us-east-1"
    assert region_of("skypilot") is None
