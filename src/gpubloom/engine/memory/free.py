"""How much host memory this process could still take."""

from pathlib import Path

_GROUP = Path("/sys/fs/cgroup")


def free_host_bytes(budget_gb: float | None = None) -> int:
    """What is free on the machine, within the limit of a container and the budget of this process."""
    # Only who saves needs it; the executor can be used without.
    import psutil  # type: ignore[import-untyped]

    available: int = psutil.virtual_memory().available
    if budget_gb is not None:
        available = min(available, int(budget_gb * 1e9) - psutil.Process().memory_info().rss)
    return max(0, min(available, _free_in_container(available)))


def _free_in_container(otherwise: int) -> int:
    """File caches count as free."""
    try:
        limit = (_GROUP / "memory.max").read_text(encoding="ascii").strip()
        used = int((_GROUP / "memory.current").read_text(encoding="ascii"))
        lines = (_GROUP / "memory.stat").read_text(encoding="ascii").splitlines()
    except OSError:
        return otherwise
    if not limit.isdigit():
        return otherwise
    counts = (line.split() for line in lines)
    cached = sum(int(count) for name, count in counts if name in {"inactive_file", "active_file"})
    return int(limit) - used + cached
