"""How the threads of a training wait for each other: spinning, or asleep.

Measured with a small model on two cores: spinning is 2.3 times faster on a quiet machine, and ten times
slower on a busy one, where a thread that spins takes the core from the one it waits for. So it depends on
what the machine is doing now. It must be decided before torch is loaded.
"""

import os
from collections.abc import Mapping

# Work for more than this share of the cores, by somebody else, makes a machine busy.
_BUSY_SHARE = 0.75


def thread_waiting(environment: Mapping[str, str]) -> dict[str, str]:
    """Variables to add for a training that starts now; what a person has set stays as it is."""
    if "OMP_WAIT_POLICY" in environment or "GOMP_SPINCOUNT" in environment or not hasattr(os, "getloadavg"):
        return {}
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return {"OMP_WAIT_POLICY": "PASSIVE"} if os.getloadavg()[0] > _BUSY_SHARE * cores else {}
