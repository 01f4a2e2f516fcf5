"""What a step did besides computing: how long it waited, for what, and what crossed the link."""

from dataclasses import dataclass


@dataclass(frozen=True)
class StepMeasures:
    """One step. Waiting is time in which the device had nothing to compute."""

    waiting_for_weights: float
    waiting_for_optimizer: float
    bytes_in: int
    bytes_out: int

    @classmethod
    def of(cls, waited: float, blocked: float, bytes_in: int, bytes_out: int) -> "StepMeasures":
        """`blocked`: how long the host waited for an update before it could order the next work."""
        optimizer = min(waited, blocked)
        return cls(waited - optimizer, optimizer, bytes_in, bytes_out)

    def metrics(self, seconds: float) -> dict[str, float]:
        """As series of a run, for a step that took so many seconds in all."""
        return {
            "engine/computing_seconds": max(
                0.0, seconds - self.waiting_for_weights - self.waiting_for_optimizer
            ),
            "engine/waiting_for_weights_seconds": self.waiting_for_weights,
            "engine/waiting_for_optimizer_seconds": self.waiting_for_optimizer,
            "engine/link_in_gb_per_second": self.bytes_in / seconds / 1e9,
            "engine/link_out_gb_per_second": self.bytes_out / seconds / 1e9,
        }
