"""The flow that the tests run: one step that trains, in the way each test asks for."""

import os
import time
from pathlib import Path

from metaflow import FlowSpec, Parameter, card, current, retry, step, traincard
from metaflow_traincard import Reporter

# Every process that loads this file leaves a line: Metaflow's own refresh would start one each time.
with (Path(os.environ["IMPORTS"])).open("a") as imports:
    imports.write(f"{os.getpid()}\n")


class TrainingFlow(FlowSpec):
    seconds = Parameter("seconds", default=1.0)
    until = Parameter("until", default="", help="a file that somebody makes who has seen enough")
    fail = Parameter("fail", default="")

    @card
    @traincard
    @retry(times=1, minutes_between_retries=0)
    @step
    def start(self) -> None:
        first = current.retry_count == 0
        reporter = Reporter(resumed_from_step=None if first else 20, telemetry_seconds=1)
        reporter.describe({"global_batch_size": 32})
        reporter.phase("train")
        began = time.monotonic()
        number = 0 if first else 20
        while time.monotonic() - began < self.seconds or number < 30 or not self._seen_enough():
            reporter.metrics({"loss": 1 / (number + 1), "learning_rate": 1e-3}, step=number)
            reporter.progress(number, 1000)
            number += 1
            time.sleep(0.02)
        reporter.log("one more batch, then it happens")
        if (self.fail == "always" and "HEALED" not in os.environ) or (self.fail == "once" and first):
            raise MemoryError("cannot allocate memory for the batch")
        self.by_id = current.card["traincard"] is not None
        self.next(self.end)

    def _seen_enough(self) -> bool:
        return not self.until or Path(self.until).exists()

    @step
    def end(self) -> None:
        pass


if __name__ == "__main__":
    TrainingFlow()
