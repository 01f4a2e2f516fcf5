"""Lets a child process notice that its parent is gone, however it went.

The parent keeps the writing end of a pipe open and never writes. When it dies, even by `kill -9`, the
kernel closes that end, and the child's read returns.
"""

import os
import signal
import threading

VARIABLE = "BLOOM_PARENT_PIPE"


def end_with_parent() -> None:
    """Ask this process to stop when the parent that started it is gone; does nothing without one."""
    descriptor = os.environ.pop(VARIABLE, None)
    if descriptor is None or not descriptor.isdecimal():
        return
    reading = int(descriptor)
    # Agents that this process starts must not hold the pipe.
    os.set_inheritable(reading, False)

    def wait() -> None:
        os.read(reading, 1)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=wait, name="parent", daemon=True).start()
