"""Plans for a machine with measured rates, beside steps that were measured on one H200 of that kind."""

from typing import Any

import pytest

from gpubloom.plan import SHAPES, Calibration, Hardware, Plan, named_shape, plan
from tests.plan.machines import H200, config_of

# As `bloom plan --measure` prints them there.
MEASURED = Hardware.parse(H200).model_copy(
    update={
        "calibration": Calibration(
            link_h2d=55.2e9,
            link_d2h=55.0e9,
            link_duplex=50.3e9,
            link_during_adam=36e9,
            host_adam_bytes_per_s=145e9,
            host_adam_8bit_bytes_per_s=79e9,
            host_memory_bytes_per_s=188e9,
            matrix_flops=733e12,
            device_memory_bytes_per_s=4.06e12,
        )
    }
)
# bench/engine.py, 2026-11-19; bench/lora.py and bench/small_step.py, 2026-11-20.
STREAMED = {"batch_size": 8, "memory": "stream"}
ADAPTERS = {"batch_size": 4, "length": 2_048, "lora": {"rank": 16}}
STEPS: list[tuple[str, dict[str, Any], float]] = [
    ("1.5b", STREAMED, 0.284),
    ("3b", STREAMED, 0.576),
    ("7b", {"batch_size": 64}, 5.203),
    ("7b", {"batch_size": 64, "precision": "fp8"}, 3.859),
    ("17.5b", {"batch_size": 8, "memory": {"gradients": "twice"}}, 3.111),
    ("26b", {"batch_size": 8, "optimizer": {"state": "8bit"}}, 3.647),
    ("0.5b", {**ADAPTERS, "method": "lora"}, 0.0524),
    # Uncompiled, by bench/finetune.py: with SwiGLU and adapters in one kernel, and before there was one.
    ("0.5b", {**ADAPTERS, "method": "lora", "compile": "off"}, 0.0596),
    ("0.5b", {**ADAPTERS, "method": "lora", "lora": {"rank": 80}, "compile": "off"}, 0.0834),
    ("7b", {**ADAPTERS, "method": "lora"}, 0.438),
    ("7b", {**ADAPTERS, "method": "lora", "precision": "fp8"}, 0.334),
    ("7b", {**ADAPTERS, "method": "lora", "memory": {"gpu_budget_gb": 18.7}}, 0.569),
    ("7b", {**ADAPTERS, "method": "qlora", "memory": {"gpu_budget_gb": 9.2}}, 0.587),
]


def planned(size: str, **fields: Any) -> Plan:
    shape = named_shape(f"qwen2.5-{size}" if f"qwen2.5-{size}" in SHAPES else size)
    return plan(config_of(**fields), MEASURED, shape=shape)


@pytest.mark.parametrize(("size", "fields", "seconds"), STEPS)
def test_steps_take_about_as_long_as_planned(size: str, fields: dict[str, Any], seconds: float) -> None:
    assert planned(size, **fields).step_seconds == pytest.approx(seconds, rel=0.12)


@pytest.mark.parametrize(
    ("size", "fastest"),
    [
        # Milliseconds of a step with 8, 9 and 10 layers updated on the GPU: 284, 290, 311.
        ("1.5b", range(7, 10)),
        # With 10, 11 and 13: 576, 576, 608.
        ("3b", range(9, 12)),
    ],
)
def test_as_many_layers_are_updated_on_the_gpu_as_was_fastest(size: str, fastest: range) -> None:
    placement = planned(size, **STREAMED).placement
    assert placement is not None
    assert sum(layer.state == "link" for layer in placement.layers) in fastest
