"""Models of any size: the ladder makes a trainable shape with about as many parameters as were asked for."""

import pytest

from gpubloom.plan import PRESETS, TrainConfig, named_config, named_shape, preset_for, shape_of
from gpubloom.plan.sizes import ladder_shape, preset_label
from tests.errors import raises

BILLIONS = [0.01 * 1.37**step for step in range(37)] + [0.01, 0.5, 7, 13, 130, 405, 1000]


@pytest.mark.parametrize("vocab_size", [257, 32_000, 151_936])
def test_a_shape_has_as_many_parameters_as_were_asked_for_within_two_percent(vocab_size: int) -> None:
    for billions in BILLIONS:
        shape = ladder_shape(billions * 1e9, vocab_size)
        assert shape.parameters / 1e9 == pytest.approx(billions, rel=0.02), billions


def test_shapes_have_the_proportions_of_known_models() -> None:
    for billions in BILLIONS:
        shape = ladder_shape(billions * 1e9, 257)
        assert 32 <= shape.hidden_size / shape.layers <= 200, billions
        assert 2 <= shape.ffn_size / shape.hidden_size <= 3.5, billions
        assert shape.head_size in (64, 128)
    wide = ladder_shape(130e9, 151_936)
    assert (wide.hidden_size, wide.layers, wide.heads, wide.kv_heads) == (12_288, 82, 96, 8)


@pytest.mark.parametrize(
    ("billions", "preset"),
    [
        (130, "130b"),
        (1.5, "1.5b"),
        (0.45, "450m"),
        (8, "8b"),
        (0.125, "125m"),
        (PRESETS["tiny"].parameters / 1e9, "tiny"),
        (1e-6, "nano"),
        (10_000, "10000b"),
    ],
)
def test_a_size_chooses_its_preset(billions: float, preset: str) -> None:
    assert preset_for(billions) == preset
    config = TrainConfig.model_validate({"model": {"preset": preset.upper()}})
    assert config.model.preset == preset
    shape_of(config)


def test_a_config_by_size_trains_that_many_parameters_with_any_vocabulary() -> None:
    for vocabulary in (300, 100_000):
        config = TrainConfig.model_validate(
            {"model": {"preset": "130b"}, "data": {"tokenizer": {"kind": "bpe", "vocab_size": vocabulary}}}
        )
        assert shape_of(config).parameters / 1e9 == pytest.approx(130, rel=0.02)
    assert preset_label("130b") == "130B · 85 layers, 12,288 wide"


def test_sizes_stand_beside_the_names_of_well_known_models() -> None:
    assert named_config("7b")["model_type"] == "qwen2"
    assert named_shape("33b").parameters / 1e9 == pytest.approx(33, rel=0.02)
    for wrong in ("33", "b", "0.0001b", "99999b", "33t", "-3b"):
        with raises(ValueError, code="unknown_shape", match="such as 13b"):
            named_config(wrong)
