"""GPU Bloom: train language models on the hardware you have or rent, and see every step.

This package imports nothing by itself: `gpubloom.traincard` must stay usable where only the
standard library is.
"""

__version__ = "0.1.0"
