"""Training on the nodes of a Ray cluster: as on one machine, and through the loss of nodes and head."""

from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.engine.parallel.ray_cluster import RayCluster, RayNode
from tests.engine.parallel.rig import (
    SAVED_OFTEN,
    finish,
    processes_of,
    started,
    wait_for_checkpoint,
    write_text_run,
)
from tests.engine.runs import read_losses
from tests.errors import printed
from tests.waiting import wait_until

pytest.importorskip("ray", reason="ray is not installed: pip install 'gpubloom[ray]'")
pytestmark = [pytest.mark.long, pytest.mark.xdist_group("ray")]
ON_RAY = {**SAVED_OFTEN, "cluster": "ray"}
_SECONDS = 600.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[RayCluster]:
    with RayCluster() as cluster:
        cluster.start_head()
        for _ in range(3):
            cluster.add_node()
        yield cluster


def node_of(cluster: RayCluster, pid: int) -> RayNode:
    for node in cluster.nodes:
        if any(child.pid == pid for child in psutil.Process(node.process.pid).children(recursive=True)):
            return node
    raise AssertionError(f"process {pid} is on no node")


def test_a_lost_node_is_replaced_and_the_run_ends_with_the_same_losses(
    tmp_path: Path, text: Path, cluster: RayCluster, undisturbed: dict[int, float]
) -> None:
    run = write_text_run(tmp_path / "run", text, **ON_RAY)
    with started([run / "train.py"], cluster.environment) as process:
        wait_for_checkpoint(run, process, seconds=_SECONDS)
        ranks = processes_of(run)
        lost = node_of(cluster, ranks[1])
        assert lost is not node_of(cluster, ranks[0]), "every process has a node of its own"
        cluster.lose(lost)
        words = finish(process, _SECONDS)
    assert "The run resumes from step-" in words
    assert read_losses(run) == pytest.approx(undisturbed, rel=1e-6)
    assert (run / "model").is_dir()
    cluster.add_node()


def test_a_run_outlives_the_head_of_its_cluster(
    tmp_path: Path, text: Path, cluster: RayCluster, undisturbed: dict[int, float]
) -> None:
    run = write_text_run(tmp_path / "run", text, **ON_RAY)
    with started([run / "train.py"], cluster.environment) as process:
        wait_for_checkpoint(run, process, seconds=_SECONDS)
        cluster.lose_head()
        wait_until(lambda: not processes_of(run), "nodes without a head to stop training")
        cluster.lose_all()
        cluster.start_head()
        for _ in range(2):
            cluster.add_node()
        finish(process, _SECONDS)
    assert read_losses(run) == pytest.approx(undisturbed, rel=1e-6)
    assert (run / "model").is_dir()


def test_without_a_cluster_or_without_room_there_is_a_sentence_and_nothing_is_left(
    tmp_path: Path, text: Path, cluster: RayCluster
) -> None:
    run = write_text_run(tmp_path / "run", text, **{**ON_RAY, "processes": 9})
    with started([run / "train.py"], {**cluster.environment, "BLOOM_JOIN_SECONDS": "5"}) as process:
        _, words = process.communicate(timeout=_SECONDS)
    assert process.returncode == 2
    assert printed(words.splitlines()[-1]) == ["ray_without_room"]
    nowhere = {**cluster.environment, "RAY_ADDRESS": "127.0.0.1:9", "BLOOM_JOIN_SECONDS": "5"}
    with started([run / "train.py"], nowhere) as process:
        _, words = process.communicate(timeout=_SECONDS)
    assert process.returncode == 2
    assert printed(words.splitlines()[-1]) == ["ray_unavailable"]
    assert not (run / "traincard").exists()
