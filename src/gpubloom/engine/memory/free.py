"""How much host memory this process could still take."""

from pathlib import Path

import psutil  # type: ignore[import-untyped]

_GROUP = Path("/sys/fs/cgroup")


def free_host_bytes() -> int:
    """What is free on the machine, or within the limit of a container. File caches count as free."""
    available: int = psutil.virtual_memory().available
    try:
        limit = (_GROUP / "memory.max").read_text(encoding="ascii").strip()
        used = int((_GROUP / "memory.current").read_text(encoding="ascii"))
        lines = (_GROUP / "memory.stat").read_text(encoding="ascii").splitlines()
    except OSError:
        return available
    if not limit.isdigit():
        return available
    counts = (line.split() for line in lines)
    cached = sum(int(count) for name, count in counts if name in {"inactive_file", "active_file"})
    return max(0, min(available, int(limit) - used + cached))
