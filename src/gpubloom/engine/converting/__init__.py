"""One form of a model or checkpoint into another: safetensors, torch, JSON, whole, divided.

Weights, moments and where a run stood are the same in every form; only their files differ.
"""

from gpubloom.engine.converting.convert import FORMS, Converted, convert

__all__ = ["FORMS", "Converted", "convert"]
