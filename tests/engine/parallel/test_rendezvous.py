"""Processes that do not belong together, or do not come together, say so in a sentence, in time."""

import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from gpubloom.engine.parallel import RankEnv, join
from gpubloom.engine.parallel.launcher import Launcher, Member
from gpubloom.engine.parallel.process_layout import shared_out
from gpubloom.plan import TrainConfig
from tests.ports import free_port

TWO = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1"}


def environments(**more: str) -> tuple[dict[str, str], dict[str, str]]:
    port = str(free_port())
    return {**TWO, "RANK": "0", "MASTER_PORT": port}, {**TWO, "RANK": "1", "MASTER_PORT": port, **more}


@pytest.mark.parametrize(
    ("variables", "sentence"),
    [
        ({"WORLD_SIZE": "2"}, "WORLD_SIZE is 2, but RANK and MASTER_ADDR and MASTER_PORT are not set"),
        ({"WORLD_SIZE": "two"}, "WORLD_SIZE is 'two', not a number from 1 on"),
        ({"WORLD_SIZE": "0"}, "WORLD_SIZE is '0', not a number from 1 on"),
        ({**TWO, "RANK": "2", "MASTER_PORT": "9"}, "RANK is 2, but WORLD_SIZE is 2"),
        (
            {**TWO, "RANK": "1", "MASTER_PORT": "9", "LOCAL_WORLD_SIZE": "3"},
            "LOCAL_WORLD_SIZE is 3, but WORLD_SIZE is 2",
        ),
        (
            {**TWO, "RANK": "1", "MASTER_PORT": "9", "LOCAL_WORLD_SIZE": "1", "LOCAL_RANK": "1"},
            "LOCAL_RANK is 1, but LOCAL_WORLD_SIZE is 1",
        ),
    ],
)
def test_variables_that_contradict_each_other_are_named(variables: dict[str, str], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        RankEnv.read(variables)


def test_a_number_of_processes_other_than_the_configs_is_refused() -> None:
    with pytest.raises(ValueError, match="The config asks for 3 processes, but WORLD_SIZE is 2"):
        shared_out(TrainConfig(processes=3), 2)
    with pytest.raises(ValueError, match="The config asks for 1 process, but WORLD_SIZE is 2"):
        shared_out(TrainConfig(processes=1), 2)
    assert shared_out(TrainConfig(batch_size=6), 2).batch_size == 6


def test_processes_chosen_by_measuring_share_the_rows_of_a_batch() -> None:
    assert shared_out(TrainConfig(device="cpu", processes="auto", batch_size=6), 2).batch_size == 3
    with pytest.raises(ValueError, match="cannot be divided by 4"):
        shared_out(TrainConfig(device="cpu", processes="auto", batch_size=6), 4)


def test_a_first_process_that_is_not_there_is_waited_for_so_long() -> None:
    _, second = environments()
    with pytest.raises(ValueError, match=r"Rank 1 did not find the first of the 2 .* within 1 s"):
        join(second, on_gpu=False, seconds=1.0)


def test_a_process_that_never_joins_is_named() -> None:
    first, _ = environments()
    with pytest.raises(ValueError, match=r"Rank 1 of the 2 processes did not come to .* within 1 s"):
        join({**first, "BLOOM_JOIN_SECONDS": "1"}, on_gpu=False)


def test_a_port_that_is_in_use_is_named() -> None:
    first, _ = environments()
    with socket.socket() as taken:
        taken.bind(("0.0.0.0", int(first["MASTER_PORT"])))
        taken.listen()
        with pytest.raises(ValueError, match=f"Port {first['MASTER_PORT']} is in use"):
            join(first, on_gpu=False, seconds=2.0)


@pytest.mark.parametrize(
    ("versions", "run", "sentence"),
    [
        ({"gpubloom": "0.0.9", "torch": "2.13"}, "a", "Rank 1 on .* has gpubloom 0.0.9, and rank 0"),
        ({"gpubloom": "1", "torch": "2.0"}, "a", "Rank 1 on .* has torch 2.0, and rank 0"),
        ({"gpubloom": "1", "torch": "2.13"}, "b", "train different runs"),
    ],
)
def test_processes_of_different_software_or_runs_refuse_each_other_in_the_same_words(
    versions: dict[str, str], run: str, sentence: str
) -> None:
    both = environments()

    def meet(number: int) -> str:
        own = {"gpubloom": "1", "torch": "2.13"} if number == 0 else versions
        with pytest.raises(ValueError, match=sentence) as refused:
            join(both[number], on_gpu=False, seconds=10.0, run="a" if number == 0 else run, versions=own)
        return str(refused.value)

    with ThreadPoolExecutor(2) as threads:
        assert len(set(threads.map(meet, (0, 1)))) == 1


def test_other_numbers_of_processes_are_seen_by_all() -> None:
    first, second = environments(WORLD_SIZE="3")
    with ThreadPoolExecutor(2) as threads:
        for result in [
            threads.submit(join, rank_env, on_gpu=False, seconds=10.0) for rank_env in (first, second)
        ]:
            with pytest.raises(ValueError, match=r"WORLD_SIZE is 3 for rank 1 on .* and 2 for rank 0"):
                result.result()


def conducted(tmp_path: Path, *scripts: str, most_restarts: int = 0) -> int:
    members = [Member(f"Rank {rank}", ["-c", script], {}) for rank, script in enumerate(scripts)]
    assert threading.current_thread() is threading.main_thread()
    return Launcher(
        lambda restarts: members,
        lambda: None,
        lambda: False,
        {},
        most_restarts=most_restarts,
    ).launch()


def test_an_error_of_a_worker_process_ends_the_run_with_its_message(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    words = "import json,os,pathlib;pathlib.Path(os.environ['TORCHELASTIC_ERROR_FILE']).write_text("
    raising = words + "json.dumps({'message': {'message': 'OSError: no room'}})); raise SystemExit(1)"
    assert conducted(tmp_path, f"raise SystemExit({75})", raising) == 1
    assert capfd.readouterr().err.splitlines() == ["Rank 1 ended with code 1: OSError: no room"]


def test_a_worker_process_that_rejects_its_input_ends_the_run_at_once(tmp_path: Path) -> None:
    # Were the other one waited for, this test would run out of time.
    assert conducted(tmp_path, "import time; time.sleep(3600)", "raise SystemExit(2)") == 2


def test_what_only_lost_the_others_is_started_again_and_then_given_up(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert conducted(tmp_path, "raise SystemExit(75)", "raise SystemExit(75)", most_restarts=1) == 1
    assert "This happened 2 times without a newer checkpoint" in capfd.readouterr().err
