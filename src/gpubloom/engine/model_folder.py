"""ModelFolder: a trained model as others read it. Hugging Face's layout, or PEFT's when adapters are trained.

Weights are the FP32 masters: what a checkpoint continues from and what an export hands out are the same.
"""

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from gpubloom.engine import adapter_folder
from gpubloom.engine.data import Tokenizer
from gpubloom.engine.executors import Executor, KeepsBlocks
from gpubloom.engine.executors.blocks.snapshot import WEIGHTS, Part
from gpubloom.engine.host_memory import free_host_bytes
from gpubloom.engine.llama_folder import CONFIG_FILE, WEIGHTS_STEM
from gpubloom.engine.model import Model
from gpubloom.engine.models.blocks import BlockSpec, TensorSpec
from gpubloom.engine.models.lora import LoraBlocks
from gpubloom.engine.shards.atomic_folder import complete_or_absent, sync_files
from gpubloom.engine.shards.shard_files import (
    SHARD_BYTES,
    Sharding,
    Stretch,
    shard,
    tensor_name,
    weight_stretches,
    write_shards,
)

if TYPE_CHECKING:
    from gpubloom.engine.executors.sharded import ShardedExecutor

_GENERATION_FILE = "generation_config.json"


@dataclass(frozen=True)
class ModelFolder:
    """What lies in a folder of this model, and how it is called there. `base` is what adapters belong to."""

    model: Model
    tokenizer: Tokenizer
    context_length: int
    base: str | None = None
    # The token that closes what the model writes in a conversation; whoever generates must stop there.
    turn_end: int | None = None

    @property
    def stem(self) -> str:
        """What the files of weights begin with."""
        return adapter_folder.WEIGHTS_STEM if self._adapters else WEIGHTS_STEM

    @property
    def stretches(self) -> list[Stretch]:
        """The trained tensors by their names in the folder."""
        return weight_stretches(self.model.blocks, self._prefix)

    def name_of(self, block: BlockSpec, tensor: TensorSpec, part: Part) -> str:
        """What a trained tensor, or a moment of it, is called in a checkpoint."""
        return tensor_name(self.model.blocks, block, tensor, part, self._prefix if part == "master" else "")

    def sharding(self, shard_bytes: int = SHARD_BYTES) -> Sharding:
        # PEFT reads one file; adapters are small.
        return shard(self.stretches, self.stem, sys.maxsize if self._adapters else shard_bytes)

    def write_auxiliary_files(self, folder: Path) -> None:
        """All that belongs beside the weights."""
        settings = self.model.settings | {"dtype": "float32"}
        (folder / CONFIG_FILE).write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")
        if (generation := self._generation()) is not None:
            text = json.dumps(generation, indent=2) + "\n"
            (folder / _GENERATION_FILE).write_text(text, encoding="utf-8")
        self.tokenizer.save(folder, self.context_length)
        if self._adapters is not None:
            adapter_folder.write_adapter_config(folder, self._adapters, self.base)

    def export(self, final: Path, executor: Executor, shard_bytes: int = SHARD_BYTES) -> None:
        """Writes the folder with the weights of this moment, complete or not at all."""
        sharding = self.sharding(shard_bytes)
        if executor.form == "sharded":
            # Loaded here: it brings torch's sharding, which a run on one device never pays for.
            from gpubloom.engine.sharded_export import export_sharded

            export_sharded(self, final, cast("ShardedExecutor", executor), sharding)
            return
        snapshot = cast(KeepsBlocks, executor).snapshot(
            min(free_host_bytes() // 2, sharding.total_bytes), streams=(WEIGHTS,)
        )
        try:
            with complete_or_absent(final) as folder:
                checksums = write_shards(folder, snapshot, [sharding])
                self.write_auxiliary_files(folder)
                sync_files(folder, checksums)
        except BaseException:
            snapshot.abandon()
            raise

    def _generation(self) -> dict[str, Any] | None:
        """generation_config.json, in which the end of a turn ends the text."""
        said = self.model.generation
        ends = _listed((said or self.model.settings).get("eos_token_id"))
        if self.turn_end is None or self.turn_end in ends:
            return said
        return {**(said or {}), "eos_token_id": [*ends, self.turn_end]}

    @property
    def _prefix(self) -> str:
        return adapter_folder.PREFIX if self._adapters else ""

    @property
    def _adapters(self) -> LoraBlocks | None:
        return self.model.blocks if isinstance(self.model.blocks, LoraBlocks) else None


def _listed(ids: object) -> list[int]:
    """An end of text is one token, several, or none."""
    if isinstance(ids, int):
        return [ids]
    return [each for each in ids if isinstance(each, int)] if isinstance(ids, list) else []
