"""ExportWeights: every tensor of a model by its name in a model folder, an adapter's changes added in.

Block by block in FP32; what an export rounds, it rounds once, when it writes.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from gpubloom.engine.adapters_on_disk import read_adapter
from gpubloom.engine.models.blocks import BlockModel, BlockSpec, TensorSpec, WeightSource
from gpubloom.engine.models.lora import LoraBlocks, LoraWeights, with_lora
from gpubloom.engine.models.sources import PretrainedWeights
from gpubloom.engine.serving.resolved_model import ResolvedModel


@dataclass(frozen=True)
class ExportWeights:
    """A model and where its weights come from."""

    model: BlockModel
    _source: WeightSource

    @classmethod
    def of(cls, found: ResolvedModel) -> "ExportWeights":
        """The merged weights of an adapter and its base, or those of a model folder."""
        # transformers takes seconds to load.
        from gpubloom.engine.models.hugging_face import open_model

        if not found.is_adapter:
            blocks = open_model(found.folder)
            return cls(blocks, PretrainedWeights(found.folder, blocks))
        assert found.base is not None, "an adapter has a base"
        adapter = read_adapter(found.folder)
        blocks = open_model(found.base)
        adapted = with_lora(blocks, adapter.settings)
        source = LoraWeights(adapted, PretrainedWeights(found.base, blocks), 0, adapter.tensors)
        return cls(adapted, source)

    @property
    def shapes(self) -> list[tuple[str, tuple[int, ...]]]:
        """Names and shapes in the order in which they come."""
        return [
            (self.model.parameter_name(block, spec), spec.shape)
            for block in self.model.blocks
            for spec in self._written(block)
        ]

    @torch.no_grad()
    def __iter__(self) -> Iterator[tuple[str, Tensor]]:
        for block in self.model.blocks:
            tensors = {spec.name: torch.empty(spec.shape) for spec in (*block.trained, *block.frozen)}
            self._source.fill(block, tensors)
            if isinstance(self.model, LoraBlocks):
                yield from self.model.merged(block, tensors)
                continue
            for spec in self._written(block):
                yield self.model.parameter_name(block, spec), tensors.pop(spec.name)

    def _written(self, block: BlockSpec) -> tuple[TensorSpec, ...]:
        return block.frozen if isinstance(self.model, LoraBlocks) else (*block.trained, *block.frozen)
