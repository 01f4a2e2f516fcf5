"""The stores of a model's blocks, made and filled one after another."""

import torch
from torch import Tensor

from gpubloom.engine.executors.blocks.device import Device
from gpubloom.engine.executors.blocks.options import ExecutorOptions
from gpubloom.engine.executors.blocks.store import BlockStore, Dequantize
from gpubloom.engine.models.blocks import BlockModel, WeightSource
from gpubloom.engine.quantize.nf4 import dequantize_flat
from gpubloom.plan.placement import Placement


def make_stores(
    model: BlockModel,
    source: WeightSource,
    placement: Placement,
    device: Device,
    dtype: torch.dtype,
    options: ExecutorOptions,
) -> list[BlockStore]:
    """Block by block: no more than one block's weights exist twice at any time."""
    block_placements = list(placement.blocks())
    assert len(block_placements) == len(model.blocks), "the placement was made for another model"
    dequantize = _dequantize(device, options) if options.quantized else None
    staging: Tensor | None = None
    stores = []
    for spec, block_placement in zip(model.blocks, block_placements, strict=True):
        is_layer = spec.kind not in {"embedding", "head"}
        store = BlockStore(
            spec,
            block_placement,
            device,
            dtype,
            dequantize=dequantize if is_layer else None,
            share_gradient=placement.share_gradients,
        )
        needed = store.trained.length + store.frozen.length
        if staging is None or len(staging) < needed:
            # Let go of first: both at once may be more than there is room for.
            staging = None
            staging = device.empty(needed, torch.float32)
        store.fill(source, staging)
        stores.append(store)
    return stores


def _dequantize(device: Device, options: ExecutorOptions) -> Dequantize:
    # Uncompiled it takes fifteen times as long; on a CPU nothing is decoded often enough to matter.
    if options.compiled and device.is_gpu:
        return torch.compile(dequantize_flat, dynamic=False)
    return dequantize_flat
