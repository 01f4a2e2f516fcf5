"""Optimizers over named FP32 tensors. They know no model, no schedule and no clipping."""

from gpubloom.engine.optimizer.adamw import AdamW

__all__ = ["AdamW"]
