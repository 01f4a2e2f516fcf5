"""Blocks on one device, with what does not fit, or need not be there, in host memory."""

from gpubloom.engine.executors.blocks.executor import BlockExecutor
from gpubloom.engine.executors.step import ExecutorOptions

__all__ = ["BlockExecutor", "ExecutorOptions"]
