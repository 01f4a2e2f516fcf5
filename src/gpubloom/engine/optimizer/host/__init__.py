"""AdamW on host memory: flat FP32 masters and moments, and the compute copy, in one pass."""

from gpubloom.engine.optimizer.host.kernel import HostAdamW
from gpubloom.engine.optimizer.host.step import AdamWStep

__all__ = ["AdamWStep", "HostAdamW"]
