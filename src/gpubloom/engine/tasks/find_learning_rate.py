"""The task find_learning_rate: trains a few steps with a growing rate, shows each, and suggests a rate.

Uses the trainer's own model, data and placement, so that what is found holds for the training that follows.
Nothing is saved: the process ends, and with it what the model learned.
"""

from dataclasses import asdict
from typing import Any

from gpubloom.engine.data import Dataset
from gpubloom.engine.learning_rate import find, growing_rates, sweep
from gpubloom.engine.model import Model
from gpubloom.engine.tasks.session import TaskSession
from gpubloom.engine.trainer import Trainer
from gpubloom.plan import TrainConfig
from gpubloom.plan.tasks import FindLearningRateTask


def run(task: FindLearningRateTask, session: TaskSession) -> dict[str, Any]:
    """The curve and the suggestion."""
    trainer = _trainer(task.train, task.steps, session)
    reporter, rates = session.reporter, growing_rates(task.lowest, task.highest, task.steps)
    session.keep_going()
    reporter.phase("train")
    tried = []
    for step, each in enumerate(sweep(trainer.executor, trainer.loader, rates), start=1):
        tried.append(each)
        reporter.metrics({"finder/loss": each.loss, "finder/learning_rate": each.learning_rate}, step=step)
        reporter.progress(step, task.steps)
        reporter.heartbeat(expect_next_in=600.0)
        session.keep_going()
    found = find(tried)
    reporter.log(found.reason)
    reporter.phase("idle")
    return asdict(found)


def _trainer(config: TrainConfig, steps: int, session: TaskSession) -> Trainer:
    # Another backend trains with the same mathematics; here the engine does the few steps for all of them.
    config = config.model_copy(update={"backend": "engine", "max_steps": steps})
    dataset = Dataset.open(config.data, config.context_length)
    model = Model.open(config, vocab_size=dataset.vocab_size, end_of_text=dataset.tokenizer.end_of_text)
    for note in model.notes:
        session.reporter.log(note, level="warning")
    return Trainer(config, model, dataset, session.reporter)
