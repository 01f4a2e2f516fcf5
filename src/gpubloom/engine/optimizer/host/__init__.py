"""AdamW on host memory: flat FP32 masters and moments, and the compute copy, in one pass."""

from gpubloom.engine.optimizer.host.adamw import AdamWStep, HostAdamW

__all__ = ["AdamWStep", "HostAdamW"]
