"""`@traincard`: gives a step its card of type `train` and keeps it up to date while the step runs."""

import atexit
import os
from typing import Any

from metaflow.decorators import StepDecorator
from metaflow.plugins.cards.card_decorator import CardDecorator

from metaflow_traincard.card_store import CARD_ID, CARD_TYPE


class TrainCardDecorator(StepDecorator):  # type: ignore[misc]
    """
    Shows a training step while it runs: metrics, system, checkpoints, logs, and why it failed.

    Parameters
    ----------
    seconds : float, default 4
        How often the card is brought up to date.
    """

    name = "traincard"
    defaults: dict[str, Any] = {"seconds": 4}  # noqa: RUF012 - Metaflow reads this attribute of the class

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._card: CardDecorator | None = None
        self._live: Any = None
        self._files: Any = None

    def step_init(
        self,
        flow: Any,
        graph: Any,
        step_name: str,
        decorators: list[Any],
        environment: Any,
        flow_datastore: Any,
        logger: Any,
    ) -> None:
        """Attaches the card. Metaflow comes to it in the same loop in which it came here."""
        self._flow_datastore = flow_datastore
        self._logger = logger
        # Counted as written in the flow: otherwise a task's process would be told to attach a second one.
        self._card = CardDecorator({"type": CARD_TYPE, "id": CARD_ID}, statically_defined=True)
        self._card.external_init()
        decorators.append(self._card)
        # A @card that was initialised before this has counted the step's cards without ours.
        count = sum(isinstance(one, CardDecorator) for one in decorators)
        CardDecorator._set_card_counts_per_step(step_name, count)

    def add_to_package(self) -> Any:
        """The code that a step on another machine needs."""
        from metaflow_traincard.packaged import packaged_files

        return list(packaged_files())

    def task_pre_step(
        self,
        step_name: str,
        task_datastore: Any,
        metadata: Any,
        run_id: str,
        task_id: str,
        flow: Any,
        graph: Any,
        retry_count: int,
        max_user_code_retries: int,
        ubf_context: Any,
        inputs: Any,
    ) -> None:
        """Finds the task's run directory; the nodes of a @parallel step share the first one's."""
        from metaflow_traincard.task_files import open_task_files, task_path, use_run_directory

        self._task = (run_id, step_name, task_id, retry_count)
        self._metadata = metadata
        self._pathspec = task_path(flow.name, run_id, step_name, task_id)
        first = os.environ.get("MF_PARALLEL_CONTROL_TASK_ID") if ubf_context else None
        self._files = open_task_files(
            self._flow_datastore,
            task_path(flow.name, run_id, step_name, first or task_id),
            retried=retry_count > 0,
            shared=bool(ubf_context),
        )
        self._attempt = retry_count + 1 + self._take_over(flow, step_name, is_first=first in {None, task_id})
        use_run_directory(self._files.run_dir, self._attempt)
        # After the last page, which Metaflow renders from these files.
        atexit.register(self._files.remove)

    def _take_over(self, flow: Any, step_name: str, *, is_first: bool) -> int:
        """After `resume`: how many attempts the task had in the origin run; their story comes along."""
        from metaflow import current
        from metaflow_traincard.origin import find_origin, foreach_index, note_foreach_index

        try:
            index = foreach_index(flow)
            if is_first:
                note_foreach_index(self._files, index)
            if not current.origin_run_id:
                return 0
            step_path = f"{flow.name}/{current.origin_run_id}/{step_name}"
            origin = find_origin(self._flow_datastore._storage_impl, step_path, index)
            if origin is None:
                return 0
            if is_first and self._task[-1] == 0:
                origin.take_over(self._files)
        except Exception as problem:  # noqa: BLE001 - the step trains without its earlier story; the reason is said
            self._warn(f"the story of the origin run could not be taken over: {problem!r}")
            return 0
        return origin.attempts

    def task_decorate(
        self,
        step_func: Any,
        flow: Any,
        graph: Any,
        retry_count: int,
        max_user_code_retries: int,
        ubf_context: Any,
    ) -> Any:
        """Every decorator is ready now, the card's too: the card can appear."""
        from metaflow import current
        from metaflow_traincard.live_card import LiveCard

        self._live = LiveCard(
            self._pathspec,
            self._files,
            self._open_store(),
            lambda content: current.card[CARD_ID].refresh(content),
            self._warn,
            retried=retry_count > 0,
            attempt=self._attempt,
            seconds=float(self.attributes["seconds"]),
        )
        self._live.start()
        return step_func

    def task_exception(
        self,
        exception: BaseException,
        step_name: str,
        flow: Any,
        graph: Any,
        retry_count: int,
        max_user_code_retries: int,
    ) -> None:
        """Metaflow renders no page for a step that failed, so the card says so itself."""
        self._end(exception)

    def task_post_step(
        self, step_name: str, flow: Any, graph: Any, retry_count: int, max_user_code_retries: int
    ) -> None:
        """The step has come to its end; Metaflow renders the last page after this."""
        self._end(None)

    def _end(self, exception: BaseException | None) -> None:
        from metaflow_traincard.reporters import end_reporters

        if self._live is not None:
            end_reporters(self._files.run_dir, exception)
            self._live.finish(exception)

    def _open_store(self) -> Any:
        from metaflow_traincard.card_store import CardStore, register_card

        assert self._card is not None
        try:
            store = CardStore(self._flow_datastore, self._pathspec, self._card._card_uuid)
            register_card(self._metadata, *self._task, self._card)
        except Exception as problem:  # noqa: BLE001 - any change inside Metaflow; its own way still works
            self._warn(
                f"this version of Metaflow stores cards in an unexpected way ({problem!r}); the card "
                "is updated through current.card.refresh(), which is slower"
            )
            return None
        return store

    def _warn(self, sentence: str) -> None:
        self._logger(f"[@traincard] {sentence}", timestamp=False, bad=True)
