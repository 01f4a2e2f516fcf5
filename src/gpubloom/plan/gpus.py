"""GPUs by name, for machines that are described and not measured. Figures are from data sheets.

Memory is what a program can use, a little less than what is printed on the box.
"""

from dataclasses import dataclass

GIBIBYTE = 2**30
# A GPU of unknown kind; low on purpose, so that a plan is rarely too hopeful.
ASSUMED_GPU_FLOPS = 50e12


@dataclass(frozen=True)
class GpuKind:
    """Usable GiB; dense BF16 (or FP16) peak; host link one way; memory bandwidth."""

    gibibytes: float
    flops: float
    link: float
    bandwidth: float
    bf16: bool = True


_PCIE3, _PCIE4, _PCIE5 = 12.5e9, 25e9, 55e9

GPU_KINDS: dict[str, GpuKind] = {
    "B200": GpuKind(178.0, 2250e12, _PCIE5, 8.0e12),
    "H200": GpuKind(139.7, 989e12, _PCIE5, 4.8e12),
    "H100": GpuKind(79.1, 989e12, _PCIE5, 3.35e12),
    "H100 PCIe": GpuKind(79.1, 756e12, _PCIE5, 2.0e12),
    "A100": GpuKind(79.1, 312e12, _PCIE4, 2.0e12),
    "L40S": GpuKind(44.4, 362e12, _PCIE4, 0.86e12),
    "L40": GpuKind(44.4, 181e12, _PCIE4, 0.86e12),
    "A10G": GpuKind(22.0, 70e12, _PCIE4, 0.6e12),
    "A10": GpuKind(22.0, 125e12, _PCIE4, 0.6e12),
    "L4": GpuKind(22.0, 121e12, _PCIE4, 0.3e12),
    "V100": GpuKind(15.7, 125e12, _PCIE3, 0.9e12, bf16=False),
    "T4": GpuKind(14.6, 65e12, _PCIE3, 0.32e12, bf16=False),
    "RTX A6000": GpuKind(47.4, 155e12, _PCIE4, 0.77e12),
    "RTX A4000": GpuKind(15.6, 77e12, _PCIE4, 0.45e12),
    "RTX 6000 Ada": GpuKind(47.4, 182e12, _PCIE4, 0.96e12),
    "RTX 5090": GpuKind(31.3, 209e12, _PCIE5, 1.79e12),
    "RTX 4090": GpuKind(23.5, 165e12, _PCIE4, 1.0e12),
    "RTX 4080": GpuKind(15.6, 97e12, _PCIE4, 0.72e12),
    "RTX 4070": GpuKind(11.6, 58e12, _PCIE4, 0.5e12),
    "RTX 4060": GpuKind(7.6, 30e12, _PCIE3, 0.27e12),
    "RTX 3090": GpuKind(23.6, 71e12, _PCIE4, 0.94e12),
    "RTX 3080": GpuKind(9.6, 60e12, _PCIE4, 0.76e12),
    "RTX 3070": GpuKind(7.6, 40e12, _PCIE4, 0.45e12),
    "RTX 3060": GpuKind(11.6, 26e12, _PCIE4, 0.36e12),
}
_UNKNOWN = GpuKind(0.0, ASSUMED_GPU_FLOPS, _PCIE3, 0.3e12)


def kind_of(name: str) -> GpuKind | None:
    """What is known of a GPU of this name."""
    # Longer names first: an A100 is no A10.
    for part in sorted(GPU_KINDS, key=len, reverse=True):
        if part.casefold() in name.casefold():
            return GPU_KINDS[part]
    return None


def assumed_kind(name: str) -> GpuKind:
    """The same, with cautious figures for one that is not known."""
    return kind_of(name) or _UNKNOWN


def peak_flops(name: str) -> float:
    return assumed_kind(name).flops
