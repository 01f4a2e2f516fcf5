"""Checkpoints: folders that are complete or absent, and that say when they are damaged.

A checkpoint is a model folder (Hugging Face layout, or a PEFT adapter) plus the state of training: moments,
random numbers, progress, and the sha256 of every file. It is written while training goes on. When to save and
what counts as best is the trainer's business.
"""

from gpubloom.engine.checkpoint.format import (
    Progress,
    best_checkpoint,
    checkpoint_folder,
    checkpoint_name,
    directory_size,
    is_sharded,
    list_checkpoints,
    remove_leftovers,
    restore_random_state,
)
from gpubloom.engine.checkpoint.restoring import Checkpoint, read_checkpoint
from gpubloom.engine.checkpoint.saving import Save, checkpoint_bytes, start_save

__all__ = [
    "Checkpoint",
    "Progress",
    "Save",
    "best_checkpoint",
    "checkpoint_bytes",
    "checkpoint_folder",
    "checkpoint_name",
    "directory_size",
    "is_sharded",
    "list_checkpoints",
    "read_checkpoint",
    "remove_leftovers",
    "restore_random_state",
    "start_save",
]
