"""Names of GPUs as providers write them, mapped to the names of our price table; and what each GPU can do.

Providers write `A6000 (48 GB)`, `NVIDIA A100-SXM4-80GB` or `H100 SXM`. The parts that name a maker, a board
or the memory are dropped, except where boards differ in speed (H100 PCIe).
"""

import re

_MAKERS = re.compile(r"\b(nvidia|geforce|tesla|quadro|amd|instinct)\b", re.IGNORECASE)
_MEMORY = re.compile(r"\b\d+ ?GB\b( HBM\w*)?|\bHBM\w*", re.IGNORECASE)
_BOARD = re.compile(r"\b(SXM\d?|PCIe|NVL|OAM|GDR)\b", re.IGNORECASE)
_GENERATION = re.compile(r"\bGeneration\b", re.IGNORECASE)
# What a provider leaves out, and our price table says.
_FULL_NAMES = {"A6000": "RTX A6000", "A5000": "RTX A5000", "A4000": "RTX A4000"}
# Boards that are slower than the usual one of the same GPU have names of their own.
_OTHER_BOARDS = {("H100", "PCIE"): "H100 PCIe", ("H100", "NVL"): "H100 NVL"}
# GPUs that come with different memory.
_BY_MEMORY = ("A100",)

# Compute capability, by NVIDIA's list; documented, not recorded.
_CAPABILITIES = {
    "V100": (7, 0),
    "T4": (7, 5),
    "RTX 6000": (7, 5),
    "A100": (8, 0),
    "A30": (8, 0),
    "A10": (8, 6),
    "A10G": (8, 6),
    "A40": (8, 6),
    "RTX A4000": (8, 6),
    "RTX A5000": (8, 6),
    "RTX A6000": (8, 6),
    "RTX 3090": (8, 6),
    "L4": (8, 9),
    "L40": (8, 9),
    "L40S": (8, 9),
    "RTX 4090": (8, 9),
    "RTX 6000 Ada": (8, 9),
    "H100": (9, 0),
    "H100 PCIe": (9, 0),
    "H100 NVL": (9, 0),
    "H200": (9, 0),
    "GH200": (9, 0),
    "B200": (10, 0),
    "GB200": (10, 0),
    "B300": (10, 3),
    "GB300": (10, 3),
    "RTX 5090": (12, 0),
    "RTX PRO 6000": (12, 0),
}
# Grace processors are arm64: neither packages nor images are chosen for them here.
_ARM64 = re.compile(r"^G[HB]\d+")
_OLDEST_CAPABILITY = (8, 0)


def our_gpu_name(written: str, memory_gb: float | None = None) -> str:
    """The name in our price table. `memory_gb`: of one GPU, where the name does not say it."""
    plain = written.replace("-", " ").replace("_", " ").replace("(", " ").replace(")", " ")
    stated = re.search(r"\b(\d+) ?GB\b", plain, re.IGNORECASE)
    memory = int(stated[1]) if stated else memory_gb
    board = _BOARD.search(plain)
    for part in (_MAKERS, _MEMORY, _BOARD, _GENERATION):
        plain = part.sub(" ", plain)
    name = " ".join(plain.split())
    name = _FULL_NAMES.get(name, name)
    if board is not None:
        name = _OTHER_BOARDS.get((name, board[0].upper()), name)
    if name in _BY_MEMORY and memory is not None:
        return f"{name} {memory:g}GB"
    return name


def compute_capability(gpu: str) -> tuple[int, int] | None:
    """By our name of the GPU; None: not known here."""
    return _CAPABILITIES.get(gpu) or _CAPABILITIES.get(gpu.split(" ")[0])


def architecture(gpu: str) -> str:
    """Of the processors beside this GPU."""
    return "arm64" if _ARM64.search(gpu) else "x86_64"


def runs_jobs(gpu: str) -> bool:
    """Whether our jobs run on such a machine: bfloat16 needs Ampere, wheels and images are for x86-64. A GPU
    that is not known here is newer than this list."""
    found = compute_capability(gpu)
    return architecture(gpu) == "x86_64" and (found is None or found >= _OLDEST_CAPABILITY)
