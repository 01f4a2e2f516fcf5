"""How many processes a run has on a machine, and what its plan says of them."""

import pytest

from gpubloom.plan import Hardware, TrainConfig, plan, plan_on, processes_on, share_of

TWO = Hardware.parse("2x A100 80GB, 256 GB host, 16 cores")
NONE = Hardware.parse("64 GB host, 8 cores")


def test_by_default_every_gpu_has_a_process() -> None:
    assert processes_on(TWO, TrainConfig()) == 2
    assert processes_on(TWO, TrainConfig(processes="auto")) == 2
    assert processes_on(NONE, TrainConfig()) == 1


@pytest.mark.parametrize("fields", [{"device": "cuda:1"}, {"device": "cpu"}, {"processes": 1}])
def test_one_process_where_one_device_is_named(fields: dict[str, object]) -> None:
    assert processes_on(TWO, TrainConfig.model_validate(fields)) == 1


def test_a_model_whose_copies_do_not_fit_into_host_memory_has_fewer_processes() -> None:
    small = Hardware.parse("2x RTX 3060, 64 GB host, 8 cores")
    config = TrainConfig.model_validate({"model": {"preset": "3b"}, "batch_size": 1})
    plan(config, small)
    with pytest.raises(ValueError, match="host memory"):
        plan(config, share_of(small, 2))
    assert processes_on(small, config) == 1


def test_more_processes_than_gpus_are_refused() -> None:
    with pytest.raises(ValueError, match=r"processes is 3, but .* has 2 GPUs: each process needs one"):
        processes_on(TWO, TrainConfig(processes=3))


@pytest.mark.parametrize("wrong", [0, "many", 1.5, True, 2_000])
def test_a_number_that_is_none_is_refused_in_words(wrong: object) -> None:
    with pytest.raises(ValueError, match="a number from 1 to 1,024, or auto"):
        TrainConfig.model_validate({"processes": wrong})


def test_a_plan_counts_the_rows_of_all_processes() -> None:
    alone = plan_on(TWO, TrainConfig(processes=1), tokens_per_epoch=1_000_000)
    both = plan_on(TWO, TrainConfig(), tokens_per_epoch=1_000_000)
    assert both.tokens_per_step == 2 * alone.tokens_per_step
    assert both.steps is not None
    assert alone.steps is not None
    assert both.steps == pytest.approx(alone.steps / 2, rel=0.01)


def test_a_cluster_is_told_how_many_and_is_not_this_machine() -> None:
    with pytest.raises(ValueError, match="does not say how many processes: set processes"):
        TrainConfig(cluster="ray")
    many = TrainConfig(cluster="ray", processes=6)
    assert processes_on(TWO, many) == 6
    assert plan_on(TWO, many).host == plan_on(TWO, TrainConfig(processes=1)).host
