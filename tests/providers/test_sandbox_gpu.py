"""CUDA inside the sandbox, started warm and plain. Skips where torch sees no GPU.

Needs nothing but pytest: `python -m pytest -c /dev/null --rootdir . tests/providers/test_sandbox_gpu.py -s`.
"""

import asyncio
import json
import shutil
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from gpubloom.agent import AgentFiles, JobSpec
from gpubloom.agent.file_lock import is_held
from gpubloom.providers.base import Reservation
from gpubloom.providers.local.devices import Devices
from gpubloom.providers.local.provider import LocalProvider
from gpubloom.providers.local.sandbox import Sandbox, limits_of_a_training
from gpubloom.sandbox.launch import COMMAND

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no GPU")

# Allocates, computes, compiles a kernel, pins memory, shares a tensor with a child, and looks around.
TRAINING = """
import json, os, time
began = time.time()
import torch
a = torch.randn(2048, 2048, device="cuda")
product = float((a @ a).abs().mean())
pinned = torch.empty(1 << 20, pin_memory=True).to("cuda", non_blocking=True)
scaled = torch.compile(lambda x: torch.relu(x) * 2 + 1)(a)
json.dump({
    "name": torch.cuda.get_device_name(), "product": product, "compiled": bool((scaled >= 1).all()),
    "pinned": pinned.shape[0], "user": os.getuid(), "secret": os.path.exists(SECRET),
    "nodes": sorted(name for name in os.listdir("/dev") if name.startswith("nvidia")),
    "seconds": time.time() - began,
}, open("facts.json", "w"))
"""


@pytest.mark.parametrize("way", ["bubblewrap", "fork", "warm", "unconfined"])
def test_cuda_works_inside(way: str, tmp_path: Path) -> None:
    if way == "bubblewrap" and shutil.which("bwrap") is None:
        pytest.skip("bubblewrap is not installed")
    secret = tmp_path / "secret.key"
    secret.write_text("a secret")
    run_dir = tmp_path / "runs" / way
    run_dir.mkdir(parents=True)
    (run_dir / "train.py").write_text(f"SECRET = {str(secret)!r}\n{TRAINING}")
    provider = LocalProvider(tmp_path, warm=way == "warm", warm_modules=["torch"], devices=Devices(tmp_path))
    sandbox = Sandbox(run_dir, tmp_path, "me", limits_of_a_training(), gpus=provider.gpus)
    options = sandbox.of_a_training([], tmp_path / "cache", noun="training", python=sys.executable)
    if way != "bubblewrap":
        options = replace(options, bubblewrap=None)
    spec = JobSpec("job", run_dir, 1, (sys.executable, "train.py"))
    if way != "unconfined":
        spec = replace(spec, confinement=options.to_json(), launcher=COMMAND)

    async def run() -> float:
        await provider.open()
        # The warm parent imports before the clock starts.
        await asyncio.sleep(20 if way == "warm" else 0)
        reservation = provider.reserve(1)
        assert isinstance(reservation, Reservation)
        began = time.monotonic()
        with reservation:
            await provider.submit(spec, reservation)
        while is_held(AgentFiles(run_dir).lock):
            await asyncio.sleep(0.02)
        await provider.close()
        return time.monotonic() - began

    seconds = asyncio.run(run())
    output = (run_dir / "logs" / "output.log").read_text()
    assert (run_dir / "facts.json").exists(), output
    facts = json.loads((run_dir / "facts.json").read_text())
    print(f"{way}: {seconds:.2f} s, {facts}")
    assert ("(warm start)" in output) == (way == "warm"), output
    assert facts["compiled"]
    assert facts["pinned"] == 1 << 20
    assert facts["secret"] is (way == "unconfined")
