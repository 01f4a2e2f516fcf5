"""Converts models and checkpoints between forms: safetensors, torch, JSON, whole, sharded.

Weights, moments and training progress are the same in every form; only their files differ.
"""

from gpubloom.engine.converting.convert import FORMS, Converted, convert

__all__ = ["FORMS", "Converted", "convert"]
