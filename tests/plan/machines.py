"""Plans of well-known sizes on described machines, in one line."""

from typing import Any

from gpubloom.plan import Hardware, Plan, TrainConfig, named_shape, plan

H200 = "H200, 125 GiB host, 16 cores"
LARGE_H200 = "H200, 1536 GB host"
RTX_4090 = "RTX 4090, 64 GB host"
TWO_3060 = "2x RTX 3060, 64 GB host, 8 cores"


def config_of(length: int = 1_024, **fields: Any) -> TrainConfig:
    return TrainConfig.model_validate({"model": {"context_length": length}, **fields})


def planned(shape: str, machine: str, length: int = 1_024, **fields: Any) -> Plan:
    return plan(config_of(length, **fields), Hardware.parse(machine), shape=named_shape(shape))


def teraflops(answer: Plan) -> float:
    """As the design page counts: 6 · parameters · tokens per second."""
    return 6 * answer.parameters * answer.tokens_per_second / 1e12
