"""The C kernel as a Python function. It works on a range and lets go of the interpreter lock meanwhile."""

import ctypes
from pathlib import Path

import torch

from gpubloom.engine.optimizer.host.build import load
from gpubloom.engine.optimizer.host.ranges import KINDS, Arrays, kind_name
from gpubloom.engine.optimizer.host.step import Constants

_SOURCE = Path(__file__).with_name("adamw.c")


class _Constants(ctypes.Structure):
    _fields_ = [(name, ctypes.c_float) for name in Constants._fields]


class NativeAdamW:
    """Raises `CannotBuild` where there is no compiler."""

    def __init__(self) -> None:
        library = load(_SOURCE)
        self._functions = {kind: library[f"adamw_{kind_name(kind)}"] for kind in KINDS}
        for function in self._functions.values():
            function.argtypes = [*[ctypes.c_void_p] * 5, ctypes.c_int64, ctypes.POINTER(_Constants)]
            function.restype = None

    def __call__(self, arrays: Arrays, constants: Constants, start: int, end: int) -> None:
        self._functions[arrays.kind](
            *(_address(tensor, start) for tensor in arrays.tensors()), end - start, _Constants(*constants)
        )


def _address(tensor: torch.Tensor | None, start: int) -> int | None:
    return None if tensor is None else tensor.data_ptr() + start * tensor.element_size()
