"""How much of the machine's memory this process holds."""

import os
import resource
from pathlib import Path

_STATM = Path("/proc/self/statm")


def resident_bytes() -> int:
    """Bytes in memory now; where the system does not say, the most there ever were."""
    try:
        pages = int(_STATM.read_text(encoding="ascii").split()[1])
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1_024
    return pages * os.sysconf("SC_PAGE_SIZE")
