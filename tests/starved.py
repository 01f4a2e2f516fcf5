"""How long processes were ready to run but got no processor, as the kernel counts it.

A promise in seconds is about the product. On a machine that is busy with other work, this part of a duration
is not the product's, and a test may subtract it. It is counted per thread, not guessed from the load.
"""

from collections.abc import Iterable
from pathlib import Path

_BILLION = 1e9


def starved_threads(*processes: int) -> dict[str, float]:
    """Seconds that each thread of these processes has waited for a processor since it began."""
    found: dict[str, float] = {}
    for process in processes:
        for task in _tasks(process):
            try:
                waited = (task / "schedstat").read_text().split()[1]
            except (OSError, IndexError):
                # It ended, or this kernel does not count.
                continue
            found[task.name] = int(waited) / _BILLION
    return found


def _tasks(process: int) -> Iterable[Path]:
    try:
        return list(Path(f"/proc/{process}/task").iterdir())
    except OSError:
        return ()


def with_children(process: int) -> list[int]:
    """A process and all that it has started, directly or not."""
    parents: dict[int, int] = {}
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            # The name, in brackets, may hold anything.
            fields = status.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        parents[int(status.parent.name)] = int(fields[1])
    found = [process]
    for one in found:
        found += [child for child, parent in parents.items() if parent == one]
    return found


def starved_between(before: dict[str, float], after: dict[str, float]) -> list[float]:
    """What each thread waited between two looks."""
    return [waited - before.get(thread, 0.0) for thread, waited in after.items()]
