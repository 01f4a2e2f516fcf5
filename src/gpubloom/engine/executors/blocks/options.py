"""How an executor runs, apart from where tensors live."""

from dataclasses import dataclass

from gpubloom.engine.parallel import ALONE, Group


@dataclass(frozen=True)
class ExecutorOptions:
    """What an executor is told besides model, placement and optimizer."""

    accumulation: int = 1
    compiled: bool = False
    quantized: bool = False
    threads: int = 1
    group: Group = ALONE
