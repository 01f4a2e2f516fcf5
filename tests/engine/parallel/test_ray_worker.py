"""What runs in a Ray worker, without Ray: the process of its rank, on a CPU and on a GPU."""

from pathlib import Path

import pytest
import torch

from gpubloom.engine.parallel.ray_worker import ProcessSpec, work
from tests.engine.conftest import sample_text
from tests.engine.parallel.rig import write_text_run
from tests.engine.runs import read_losses
from tests.ports import free_port

NO_GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no GPU")


@pytest.mark.long
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=NO_GPU)])
def test_a_worker_trains_its_run_on_the_device_of_its_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, device: str
) -> None:
    (tmp_path / "text.txt").write_text(sample_text(), encoding="utf-8")
    run = write_text_run(tmp_path / "run", tmp_path / "text.txt", max_steps=4)
    # Planned on another machine, as for a cluster; the device is that of the node.
    config = run / "config.json"
    config.write_text(config.read_text(encoding="utf-8").replace('"cpu"', f'"{device}"'), encoding="utf-8")
    ranks = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}
    for name, value in {**ranks, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}.items():
        monkeypatch.setenv(name, value)
    work(ProcessSpec(run / "train.py", (), {}))
    log = (run / "logs" / "rank-0.log").read_text(encoding="utf-8")
    assert (run / "model" / "model.safetensors").is_file(), log
    losses = read_losses(run)
    assert list(losses) == [1, 2, 3, 4]
    assert losses[4] < losses[1]
