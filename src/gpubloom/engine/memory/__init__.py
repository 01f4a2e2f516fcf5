"""Where tensors that are streamed live. It knows no model and no optimizer."""

from gpubloom.engine.host_memory import PinningRefused, host_buffer, total_host_bytes

__all__ = ["PinningRefused", "host_buffer", "total_host_bytes"]
