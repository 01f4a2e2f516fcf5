"""Training over a network that is cut for a while: the head on one machine, a node on another."""

import os
import subprocess
import time
from collections.abc import Collection, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.engine.parallel.cable import Cable
from tests.engine.parallel.ray_cluster import RayCluster
from tests.engine.parallel.rig import (
    SAVED_OFTEN,
    finish,
    lives,
    processes_of,
    started,
    wait_for_checkpoint,
    write_text_run,
)
from tests.engine.runs import read_losses

pytest.importorskip("ray", reason="ray is not installed: pip install 'gpubloom[ray]'")
pytestmark = [pytest.mark.long, pytest.mark.xdist_group("ray")]
_SECONDS = 600.0


@pytest.fixture
def cable() -> Iterator[Cable]:
    if os.geteuid() != 0:
        pytest.skip("only root may make network namespaces")
    with ExitStack() as stack:
        try:
            cable = stack.enter_context(Cable())
        except OSError as problem:
            pytest.skip(f"no network namespaces here: {problem}")
        yield cable


def test_a_run_outlives_a_cut_between_the_head_and_a_node(
    tmp_path: Path, text: Path, undisturbed: dict[int, float], cable: Cable
) -> None:
    run = write_text_run(tmp_path / "run", text, **SAVED_OFTEN, cluster="ray")
    with RayCluster(machine=cable.head) as cluster:
        cluster.start_head(cpus=1)
        cluster.add_node(cable.node)
        with started([run / "train.py"], cluster.environment, cable.head.entering) as process:
            wait_for_checkpoint(run, process, seconds=_SECONDS)
            disturbed = processes_of(run)
            assert set(disturbed) == {0, 1}
            cable.pull()
            # On the head's side: a node that hears nothing does not know that it was given up.
            wait_until_one_ended(disturbed.values(), process)
            cable.plug_in()
            deadline = time.monotonic() + _SECONDS
            while process.poll() is None:
                assert time.monotonic() < deadline, "the run does not go on"
                cluster.replace_ended_nodes()
                time.sleep(0.5)
            words = finish(process, _SECONDS)
    assert "The run resumes from step-" in words
    assert read_losses(run) == pytest.approx(undisturbed, rel=1e-6)
    assert (run / "model").is_dir()


def wait_until_one_ended(pids: Collection[int], process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 120
    while all(lives(pid) for pid in pids):
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < deadline, "nobody noticed that the cable was pulled"
        time.sleep(0.2)
