"""Bounds that a child process sets itself before it touches what strangers made. Standard library only."""

import os
import resource

# Address space, not memory in use: libraries reserve much more than they touch.
_ADDRESS_BYTES = 6 << 30


def bound_this_process(*, cpu_seconds: int, politely: bool = False) -> None:
    """No more than so much memory and time; no core files; `politely` lets everything else go first."""
    _, most = resource.getrlimit(resource.RLIMIT_AS)
    limit = _ADDRESS_BYTES if most == resource.RLIM_INFINITY else min(_ADDRESS_BYTES, most)
    resource.setrlimit(resource.RLIMIT_AS, (limit, most))
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_seconds, cpu_seconds + 5))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if politely:
        os.nice(10)
