"""Blocks whose tensors are sharded among the processes of a group: FSDP2."""

from gpubloom.engine.executors.sharded.executor import ShardedExecutor

__all__ = ["ShardedExecutor"]
