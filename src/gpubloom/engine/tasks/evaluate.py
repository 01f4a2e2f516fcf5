"""The task `evaluate`: compares a tuned model with its base on held-out data, prompts and benchmarks."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gpubloom.engine.data.loader import eval_batches
from gpubloom.engine.evaluation.benchmarks import benchmark, must_be_possible
from gpubloom.engine.evaluation.perplexity import HeldOut, Perplexity, open_held_out, perplexity
from gpubloom.engine.generate import TextModel
from gpubloom.engine.hardware import choose_compute
from gpubloom.engine.serving.answers import Answer, Wanted
from gpubloom.engine.serving.model_registry import BASE, TUNED, ModelRegistry, NotEnoughMemory
from gpubloom.engine.serving.prompt_formatter import PromptFormatter
from gpubloom.engine.serving.resolved_model import ResolvedModel, opened_model
from gpubloom.engine.tasks.session import TaskSession
from gpubloom.errors import CodedError, InputError
from gpubloom.plan.tasks import EvaluateTask

_HEARTBEAT_SECONDS = 600.0


class NoRoom(CodedError, ValueError):
    """A prompt that fills the model's context."""

    code = "context_length_exceeded"


def replay(
    model: TextModel, formatter: PromptFormatter, prompt: str, max_new_tokens: int, *, chats: bool
) -> str:
    """`chats`: the prompt is a question in a conversation, otherwise a text to continue."""
    ids = formatter.chat([{"role": "user", "content": prompt}]) if chats else formatter.completion(prompt)
    if len(ids) >= model.context_length:
        raise NoRoom(
            f"The prompt {prompt[:40]!r}… has {len(ids):,} tokens, which leaves no room for an answer: the "
            f"context length of the model is {model.context_length:,} tokens."
        )
    wanted = Wanted(max_new_tokens)
    if chats:
        wanted = Wanted(max_new_tokens, stop=formatter.turn_ends, lead=formatter.lead)
    return "".join(Answer(model, formatter, ids, wanted))


@dataclass
class _OfModel:
    """What one of the two models gave."""

    perplexity: Perplexity | None = None
    answers: list[str | None] = field(default_factory=list)
    benchmarks: dict[str, dict[str, float]] | None = None


def run(task: EvaluateTask, session: TaskSession) -> dict[str, Any]:
    """Raises Stopped when somebody wants it to end before."""
    if task.lm_eval_tasks:
        must_be_possible(task.lm_eval_tasks)
    base = Path(task.base) if task.base else None
    with opened_model(Path(task.model), base, copy=session.home / "weights") as found:
        return _Evaluation(task, session, found).run()


class _Evaluation:
    def __init__(self, task: EvaluateTask, session: TaskSession, found: ResolvedModel) -> None:
        self._task = task
        self._session = session
        self._notes: list[str] = list(found.notes)
        session.reporter.heartbeat(expect_next_in=_HEARTBEAT_SECONDS)
        self._formatter = PromptFormatter.of(found)
        # A text that is continued is what such a run was trained on.
        self._chats = self._formatter.template is not None and not found.trained_on_text
        try:
            self._registry = ModelRegistry(found, choose_compute(task.device, "auto"))
        except NotEnoughMemory as problem:
            raise InputError(problem.code, str(problem)) from None
        session.reporter.describe({"model": str(found.folder), **self._registry.facts()})
        self._held_out = self._open_held_out(found)
        self._done = 0
        self._total = len(self._registry.names) * (self._batch_count() + len(task.prompts))

    def run(self) -> dict[str, Any]:
        self._session.reporter.phase("eval")
        names = self._registry.names
        # What was tuned is loaded already; its base may have to take its place.
        tuned = self._of(self._registry.default)
        base = self._of(BASE) if BASE in names else _OfModel(answers=[None] * len(tuned.answers))
        self._report(base, tuned)
        return {
            "perplexity": {BASE: _record(base), TUNED: _record(tuned)},
            "prompts": [
                {"prompt": prompt, BASE: before, TUNED: after}
                for prompt, before, after in zip(self._task.prompts, base.answers, tuned.answers, strict=True)
            ],
            "lm_eval": {BASE: base.benchmarks, TUNED: tuned.benchmarks} if self._task.lm_eval_tasks else None,
            "notes": self._notes,
        }

    def _of(self, name: str) -> _OfModel:
        self._session.reporter.heartbeat(expect_next_in=_HEARTBEAT_SECONDS)
        try:
            model = self._registry.get_alone(name)
        except (NotEnoughMemory, ValueError) as problem:
            self._notes.append(f"{name} was not evaluated: {problem}")
            return _OfModel(answers=[None] * len(self._task.prompts))
        found = _OfModel()
        if self._held_out is not None:
            found.perplexity = perplexity(
                model, self._batches(), self._formatter.tokenizer.vocab_size, self._advance
            )
        for prompt in self._task.prompts:
            found.answers.append(self._answer(model, prompt))
            self._advance()
        if self._task.lm_eval_tasks:
            self._session.reporter.heartbeat(expect_next_in=24 * 3_600)
            found.benchmarks = benchmark(self._registry, model, self._task.lm_eval_tasks)
        return found

    def _answer(self, model: TextModel, prompt: str) -> str | None:
        try:
            return replay(model, self._formatter, prompt, self._task.max_new_tokens, chats=self._chats)
        except NoRoom as problem:
            if str(problem) not in self._notes:
                self._notes.append(str(problem))
            return None

    def _open_held_out(self, found: ResolvedModel) -> HeldOut | None:
        held_out = open_held_out(
            found, self._task.data_path, self._registry.context_length, fetches=self._task.fetches_data
        )
        if isinstance(held_out, str):
            self._notes.append(held_out)
            return None
        self._notes += held_out.notes
        return held_out

    def _batches(self) -> Iterator[Any]:
        assert self._held_out is not None
        return eval_batches(
            self._held_out.rows, batch_size=self._held_out.batch_size, max_batches=self._task.max_batches
        )

    def _batch_count(self) -> int:
        if self._held_out is None:
            return 0
        batches = -(-len(self._held_out.rows) // self._held_out.batch_size)
        return min(batches, self._task.max_batches)

    def _advance(self) -> None:
        """After each piece of work: a sign of life, and the chance to stop."""
        self._done += 1
        self._session.reporter.progress(self._done, self._total)
        self._session.reporter.heartbeat(expect_next_in=_HEARTBEAT_SECONDS)
        self._session.keep_going()

    def _report(self, base: _OfModel, tuned: _OfModel) -> None:
        values = {
            f"evaluate/{name}_{measure}": getattr(found.perplexity, measure)
            for name, found in ((BASE, base), (TUNED, tuned))
            if found.perplexity is not None
            for measure in ("loss", "perplexity")
        }
        if values:
            self._session.reporter.metrics(values, step=self._done)


def _record(found: _OfModel) -> dict[str, Any] | None:
    return None if found.perplexity is None else found.perplexity.record()
