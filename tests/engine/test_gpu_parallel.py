"""Several processes on one real GPU: NCCL with one rank, and two ranks that share the GPU through Gloo.

Needs nothing but pytest: `python -m pytest -c /dev/null --rootdir . tests/engine/test_gpu_parallel.py -s`.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from gpubloom.engine.parallel import ALONE
from tests.engine.gpu_member import losses
from tests.ports import free_port

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no GPU")


@pytest.mark.parametrize(
    ("executor", "backend", "size"), [("sharded", "nccl", 1), ("block", "gloo", 2), ("sharded", "gloo", 2)]
)
def test_processes_on_a_gpu_learn_what_one_does(
    tmp_path: Path, executor: str, backend: str, size: int
) -> None:
    together = {"WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    command = [sys.executable, "-m", "tests.engine.gpu_member", str(tmp_path), executor, backend, "cuda:0"]
    members = [
        subprocess.Popen(command, env=os.environ | together | {"RANK": str(rank)}) for rank in range(size)
    ]
    try:
        assert [member.wait(300) for member in members] == [0] * size
    finally:
        for member in members:
            member.kill()
            member.wait()
    expected = losses("block", "cuda:0", ALONE)
    for rank in range(size):
        found = json.loads((tmp_path / f"{rank}.json").read_text())
        print(f"\n{executor}, {backend}, rank {rank} of {size}: {found}, alone {expected}")
        assert found == pytest.approx(expected, rel=1e-4)
