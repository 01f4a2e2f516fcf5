"""Thirty tasks of one step, and a step on several nodes."""

from metaflow import FlowSpec, Parameter, current, parallel, step, traincard
from metaflow_traincard import Reporter


class ManyFlow(FlowSpec):
    tasks = Parameter("tasks", default=30)
    nodes = Parameter("nodes", default=3)

    @step
    def start(self) -> None:
        self.numbers = list(range(self.tasks))
        self.next(self.train, foreach="numbers")

    @traincard
    @step
    def train(self) -> None:
        with Reporter(telemetry_seconds=0) as reporter:
            reporter.metric("loss", float(self.input), step=1)
        self.next(self.gather)

    @step
    def gather(self, inputs: object) -> None:
        self.next(self.middle)

    @step
    def middle(self) -> None:
        self.next(self.spread, num_parallel=self.nodes)

    @traincard
    @parallel
    @step
    def spread(self) -> None:
        with Reporter(telemetry_seconds=0) as reporter:
            node = current.parallel.node_index
            reporter.metric("step_seconds", 1.0 + node, step=1)
        self.next(self.meet)

    @step
    def meet(self, inputs: object) -> None:
        self.next(self.end)

    @step
    def end(self) -> None:
        pass


if __name__ == "__main__":
    ManyFlow()
