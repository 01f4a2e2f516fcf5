"""Weights in four bits, for frozen base models. It knows no model and no adapter."""

from gpubloom.engine.quantize.nf4 import FlatNf4, Nf4, dequantize, dequantize_flat, flat_bytes, quantize

__all__ = ["FlatNf4", "Nf4", "dequantize", "dequantize_flat", "flat_bytes", "quantize"]
