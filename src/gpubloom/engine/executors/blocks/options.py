"""How an executor runs, apart from where tensors live."""

from collections.abc import Callable
from dataclasses import dataclass

from gpubloom.engine.parallel import ALONE, Group


@dataclass(frozen=True)
class ExecutorOptions:
    """What an executor is told besides model, placement and optimizer."""

    accumulation: int = 1
    compiled: bool = False
    # Begins uncompiled, and changes over once a thread has compiled the layers.
    compiled_aside: bool = False
    quantized: bool = False
    threads: int = 1
    group: Group = ALONE
    # Takes sentences for the run's log.
    say: Callable[[str], None] = lambda sentence: None
