"""How fast a machine's parts are: measured where somebody measured, assumed by kind where not."""

from dataclasses import dataclass

from gpubloom.plan import costs
from gpubloom.plan.hardware import Gpu, Hardware, assumed_kind


@dataclass(frozen=True)
class Rates:
    """Bytes and operations per second. A CPU that trains alone has no link."""

    matrix: float
    memory: float
    link_up: float
    link_down: float
    link_both: float
    # Each way, both at once, while the host optimizer works beside.
    link_during_updates: float
    host_adam: float
    # What link and host optimizer can move together.
    host_memory: float
    assumptions: tuple[str, ...]


def rates_of(hardware: Hardware, gpu: Gpu | None, precision: str) -> Rates:
    """The rates that a plan rests on, and in words which of them are assumed."""
    measured = hardware.calibration
    cores = hardware.cpu_cores
    adam = measured.host_adam_bytes_per_s or min(
        cores * costs.ADAM_BYTES_PER_SECOND_PER_CORE, costs.ADAM_BYTES_PER_SECOND_AT_MOST
    )
    if gpu is None:
        fast = precision == "bf16" and hardware.cpu_bf16
        flops = hardware.assumed_cpu_flops * (costs.CPU_BF16_OVER_FP32 if fast else 1.0)
        speed = f"{flops / 1e9:.0f} GFLOP/s for {cores} CPU cores"
        return Rates(flops, adam, adam, adam, adam, adam, adam, adam, () if hardware.cpu_flops else (speed,))
    kind = assumed_kind(gpu.name)
    # A peak given by hand counts more than the data sheet's.
    matrix = measured.matrix_flops or gpu.flops * costs.MATRIX_OVER_PEAK
    up = measured.link_h2d or kind.link
    down = measured.link_d2h or kind.link
    both = measured.link_duplex or min(up, down) * costs.DUPLEX_OVER_ONE_WAY
    during_updates = min(both, measured.link_during_adam or both * costs.LINK_DURING_UPDATES)
    host_memory = max(adam, measured.host_memory_bytes_per_s or adam * costs.HOST_MEMORY_OVER_ADAM)
    memory = measured.device_memory_bytes_per_s or kind.bandwidth
    assumed = []
    if measured.matrix_flops is None:
        assumed.append(f"{matrix / 1e12:.0f} TFLOP/s for {gpu.name}")
    if measured.link_h2d is None:
        assumed.append(f"{up / 1e9:.0f} GB/s between host and GPU")
    if measured.host_adam_bytes_per_s is None:
        assumed.append(f"{adam / 1e9:.0f} GB/s for the optimizer on {cores} CPU cores")
    factor = costs.FP32_OVER_BF16 if precision == "fp32" else 1.0
    return Rates(matrix * factor, memory, up, down, both, during_updates, adam, host_memory, tuple(assumed))
