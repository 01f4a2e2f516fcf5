"""A flow with a task that is retried and a step that fails until it is mended."""

import os

from metaflow import FlowSpec, current, retry, step, traincard
from metaflow_traincard import Reporter


class TrainFlow(FlowSpec):
    @step
    def start(self) -> None:
        self.kinds = ["fine", "retried"]
        self.next(self.train, foreach="kinds")

    @retry(times=1, minutes_between_retries=0)
    @traincard
    @step
    def train(self) -> None:
        first = 5 if current.retry_count else 0
        reporter = Reporter(resumed_from_step=first) if first else Reporter()
        for number in range(first, 10):
            reporter.metric("loss", 10 - number, number)
            print("printed", self.input, number)
            if self.input == "retried" and not current.retry_count and number == 6:
                raise ValueError("the first attempt ends here")
        self.next(self.join)

    @step
    def join(self, inputs: object) -> None:
        self.next(self.fails)

    @traincard
    @step
    def fails(self) -> None:
        reporter = Reporter()
        for number in range(4):
            reporter.metric("loss", 4 - number, number)
        if not os.environ.get("MENDED"):
            raise RuntimeError("CUDA error: device-side assert triggered")
        self.next(self.end)

    @step
    def end(self) -> None:
        pass


if __name__ == "__main__":
    TrainFlow()
