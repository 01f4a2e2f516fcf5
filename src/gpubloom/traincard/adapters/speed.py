"""How fast a training goes, and how much is in a batch."""

import time
from collections.abc import Mapping
from typing import Any


class Speed:
    """Counts what was trained since `take` was last asked. Time spent otherwise is left out with `resume`."""

    def __init__(self) -> None:
        self._seconds = 0.0
        self._last = time.perf_counter()
        self._steps = self._samples = self._tokens = 0

    def resume(self) -> None:
        """The time since the last step was spent on something else: an evaluation, a checkpoint."""
        self._last = time.perf_counter()

    def step(self) -> float:
        """A step is done; returns how many seconds it took, waiting for data included."""
        now = time.perf_counter()
        seconds, self._last = now - self._last, now
        self._seconds += seconds
        self._steps += 1
        return seconds

    def add(self, samples: int = 0, tokens: int = 0) -> None:
        """Counts what went into the step."""
        self._samples += samples
        self._tokens += tokens

    def set_tokens(self, tokens: int) -> None:
        """Replaces the tokens counted since the last `take`."""
        self._tokens = tokens

    def take(self) -> dict[str, float]:
        """Speeds since the last call, under the names that charts know; what was not counted is absent."""
        seconds, steps = self._seconds, self._steps
        counted = {"samples_per_second": self._samples, "tokens_per_second": self._tokens}
        self._seconds, self._steps, self._samples, self._tokens = 0.0, 0, 0, 0
        if steps == 0 or seconds <= 0:
            return {}
        found = {name: count / seconds for name, count in counted.items() if count}
        return {**found, "step_seconds": seconds / steps}


def size_of(batch: Any) -> tuple[int, int]:
    """Samples and tokens in a batch, from the shape of its first tensor; 0 for what cannot be known.

    Whole numbers in two dimensions are tokens, padding included: no value is looked at, so no device waits.
    """
    tensor = _first_tensor(batch)
    if tensor is None or len(tensor.shape) == 0:
        return 0, 0
    samples = int(tensor.shape[0])
    is_text = len(tensor.shape) == 2 and "int" in str(tensor.dtype)
    return samples, samples * int(tensor.shape[1]) if is_text else 0


def _first_tensor(batch: Any) -> Any:
    if hasattr(batch, "shape") and hasattr(batch, "dtype"):
        return batch
    if isinstance(batch, Mapping):
        if "input_ids" in batch:
            return _first_tensor(batch["input_ids"])
        batch = batch.values()
    elif not isinstance(batch, (list, tuple)):
        return None
    return next((found for part in batch if (found := _first_tensor(part)) is not None), None)
