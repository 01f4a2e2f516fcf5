"""Ways to run a training step behind one protocol. An executor knows tensors and devices, and no run."""

from gpubloom.engine.executors.protocol import Executor, KeepsBlocks

__all__ = ["Executor", "KeepsBlocks"]
