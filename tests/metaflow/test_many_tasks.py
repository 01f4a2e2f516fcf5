"""Steps with many tasks: foreach, several nodes, retries on another machine."""

import json
import urllib.request
from pathlib import Path

import pytest

from tests.metaflow.conftest import Flow, on_s3
from tests.traincard_mirror.conftest import S3Server

pytestmark = [pytest.mark.xdist_group("metaflow"), pytest.mark.long]


def test_thirty_tasks_have_a_card_each_and_the_viewer_lists_them(tmp_path: Path) -> None:
    flow = Flow("many", tmp_path)
    flow.run("run", "--max-workers", "4", "--max-num-splits", "100")
    cards = flow.cards("train")
    assert len(cards) == 30
    losses = {card.page_data["metrics"][0]["last"]["value"] for card in cards}
    assert losses == set(range(30))
    # Without the option, Metaflow's viewer stumbles over its limit of cards.
    with flow.server("--max-cards", "100") as address, urllib.request.urlopen(f"{address}/runinfo") as answer:
        listed = json.load(answer)["cards"]
    assert len(listed) == 30 + 3


@pytest.mark.parametrize("datastore", ["local", "s3"])
def test_the_nodes_of_a_parallel_step_are_ranks_of_one_run(
    tmp_path: Path, datastore: str, request: pytest.FixtureRequest
) -> None:
    settings = {}
    if datastore == "s3":
        server: S3Server = request.getfixturevalue("s3")
        settings = on_s3(server)
    flow = Flow("many", tmp_path, **settings)
    if datastore == "s3":
        flow.cards_root = server.folder / "bucket/metaflow/mf.cards"
    flow.run("run", "--tasks", "1", "--nodes", "3")
    cards = flow.cards("spread")
    assert len(cards) == 3
    # The first node's task is named like any other; those of the rest after it.
    shown = next(card.page_data for card in cards if "_node_" not in card.page_data["name"])
    assert [rank["rank"] for rank in shown["ranks"]] == [0, 1, 2]
    assert shown["status"]["world_size"] == 3
    (spread,) = shown["rank_variance"]
    assert (spread["lowest"]["rank"], spread["highest"]["rank"]) == (0, 2)


def test_a_retry_on_another_machine_continues_from_the_datastore(tmp_path: Path, s3: S3Server) -> None:
    flow = Flow("training", tmp_path, **on_s3(s3))
    flow.cards_root = s3.folder / "bucket/metaflow/mf.cards"
    # Each attempt has a temporary folder of its own, so the second knows the first from the datastore alone.
    flow.run("run", "--fail", "once")
    for card in flow.cards():
        (restart,) = card.page_data["discontinuities"]
        assert restart["attempt"] == 2
        assert "MemoryError" in restart["reason"]
