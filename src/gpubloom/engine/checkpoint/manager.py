"""CheckpointManager: starts a save, reports the finished checkpoint, and deletes old ones.

The trainer decides when to save; saving.py and sharded.py write the files. If every process has the whole
model, the first process saves; if the model is sharded, all processes save.
"""

import shutil
from pathlib import Path

from gpubloom.engine.checkpoint import (
    Checkpoint,
    Progress,
    Save,
    best_checkpoint,
    checkpoint_bytes,
    checkpoint_folder,
    checkpoint_name,
    directory_size,
    list_checkpoints,
    read_checkpoint,
    remove_leftovers,
    start_save,
)
from gpubloom.engine.executors import Executor
from gpubloom.engine.model_folder import ModelFolder
from gpubloom.engine.parallel import Group
from gpubloom.engine.shards.atomic_folder import must_have_room
from gpubloom.errors import InputError
from gpubloom.plan import TrainConfig
from gpubloom.traincard import Reporter

# Saving a large model is silent for a while; observers are told to wait longer.
SAVE_HEARTBEAT_SECONDS = 600.0


class CheckpointManager:
    """One process's hand in the checkpoints of its run."""

    def __init__(
        self,
        config: TrainConfig,
        run_dir: Path,
        model_folder: ModelFolder,
        executor: Executor,
        reporter: Reporter,
        group: Group,
    ) -> None:
        self.folder = checkpoint_folder(config, run_dir)
        self._config = config
        self._model_folder = model_folder
        self._executor = executor
        self._reporter = reporter
        self._group = group
        self._saving: Save | None = None

    @property
    def takes_part(self) -> bool:
        return self._group.leads or self._executor.form == "sharded"

    @property
    def is_saving(self) -> bool:
        return self._saving is not None

    def path_of(self, step: int) -> Path:
        return self.folder / checkpoint_name(step)

    def newest(self) -> Path | None:
        found = list_checkpoints(self.folder)
        return found[-1] if found else None

    def holds(self, step: int) -> bool:
        """Whether a step is saved or on its way to disk; those who take part get the same answer."""
        path = self.path_of(step)
        there = path.exists() or (self._saving is not None and self._saving.path == path)
        return self._group.agree(there) if self._executor.form == "sharded" else there

    def clean(self) -> None:
        """Removes what a killed trainer was still writing."""
        if self._group.leads:
            remove_leftovers(self.folder)

    def must_have_room(self, saves: int) -> None:
        """InputError, in every process, when the disk has no room for the next checkpoint.

        `saves`: how many the run will still write. When not all that it keeps fit, a warning is logged.
        """
        problem = None
        if self._group.leads and saves > 0:
            size = checkpoint_bytes(self._model_folder, self._executor)
            try:
                free = must_have_room(self.path_of(0), size, "A checkpoint of this run")
                self._warn_of_little_room(saves, size, free)
            except InputError as found:
                problem = found
        if (problem := self._group.agree(problem)) is not None:
            raise problem

    def start(self, progress: Progress) -> None:
        """Begins to save the state of this moment; training goes on meanwhile."""
        self.finish()
        self._announce_saving()
        # Steps up to a checkpoint are never repeated, so what they reported must not be lost after it.
        self._reporter.flush()
        self._saving = start_save(
            self.folder,
            self._model_folder,
            self._executor,
            progress,
            host_budget_gb=self._config.memory.host_budget_gb,
        )
        self._reporter.phase("train")

    def finish_if_over(self) -> None:
        if self._saving is not None and self._saving.is_over:
            self.finish()

    def finish(self) -> None:
        """Waits for the checkpoint that is on its way to disk, tells of it, and forgets old ones."""
        save, self._saving = self._saving, None
        if save is None:
            return
        if not save.is_over:
            self._announce_saving()
        save.finish()
        if self._group.leads:
            self._tell_of(save)
        self._reporter.phase("train")

    def read_newest(self) -> Checkpoint | None:
        """What to continue from: the same checkpoint in every process."""
        newest = self._group.agree(self.newest())
        return None if newest is None else read_checkpoint(newest, self._model_folder)

    def export(self, final: Path) -> None:
        """The final model, complete or absent; left alone when it is there."""
        if not self.takes_part:
            return
        there = final.exists()
        if self._group.agree(there) if self._executor.form == "sharded" else there:
            return
        self._reporter.phase("save")
        self._model_folder.export(final, self._executor)
        self._reporter.phase("idle")

    def _announce_saving(self) -> None:
        self._reporter.phase("save")
        self._reporter.heartbeat(expect_next_in=SAVE_HEARTBEAT_SECONDS)

    def _warn_of_little_room(self, saves: int, size: int, free: int) -> None:
        # An old checkpoint is removed when the new one is complete.
        kept, there = self._config.checkpoint.keep_last, len(list_checkpoints(self.folder))
        wanted = min(saves, kept + 1 - there)
        if wanted * size > free:
            self._reporter.log(
                f"The disk of {self.folder} has room for {free // size} of the {wanted} checkpoints that "
                f"this run needs there at once ({size / 1e9:,.3f} GB each, checkpoint.keep_last: {kept}): "
                "free some space, or keep fewer.",
                level="warning",
            )

    def _tell_of(self, save: Save) -> None:
        best = best_checkpoint(self.folder)
        self._reporter.checkpoint(
            save.path,
            {"size": directory_size(save.path), **save.progress.metadata},
            step=save.progress.step,
            metrics=save.progress.metrics,
            best=best is not None and best[0] == save.path,
        )
        self._forget_old(keep=best[0] if best else save.path)

    def _forget_old(self, keep: Path) -> None:
        for old in list_checkpoints(self.folder)[: -self._config.checkpoint.keep_last]:
            if old != keep:
                shutil.rmtree(old)
                self._reporter.checkpoint_removed(old)
