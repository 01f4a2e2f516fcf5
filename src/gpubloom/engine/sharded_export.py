"""The final model of a sharded run: tensors are gathered one by one, the first process writes them.

A module of its own, because it imports torch's sharding, which a run on one device never pays for.
"""

from pathlib import Path

import torch
from torch.distributed.tensor import DTensor

from gpubloom.engine.executors.sharded import ShardedExecutor
from gpubloom.engine.executors.sharded.executor import ShardedTensor, connected
from gpubloom.engine.model_folder import ModelFolder
from gpubloom.engine.shards.atomic_folder import complete_or_absent, sync_files
from gpubloom.engine.shards.safetensors_file import TensorFileWriter, bytes_of
from gpubloom.engine.shards.shard_files import Sharding, write_index


def export_sharded(
    model_folder: ModelFolder, final: Path, executor: ShardedExecutor, sharding: Sharding
) -> None:
    """Writes the folder with the weights of this moment, complete or not at all; all processes call."""
    tensors = {
        model_folder.name_of(executor.model.blocks[tensor.block], tensor.spec, "master"): tensor
        for tensor in executor.tensors
    }
    with connected(executor.group):
        if not executor.group.leads:
            for shard in sharding.shards:
                for stretch in shard.stretches:
                    _gathered(tensors[stretch.name])
            return
        with complete_or_absent(final) as folder:
            checksums = {}
            for shard in sharding.shards:
                writer = TensorFileWriter(folder / shard.file, shard.entries)
                try:
                    for stretch in shard.stretches:
                        whole = _gathered(tensors[stretch.name])
                        writer.write(bytes_of(whole.cpu().contiguous().view(-1)))
                    checksums[shard.file] = writer.close()
                finally:
                    writer.discard()
            write_index(folder, sharding)
            model_folder.write_auxiliary_files(folder)
            sync_files(folder, checksums)


@torch.no_grad()
def _gathered(tensor: ShardedTensor) -> torch.Tensor:
    whole = tensor.whole(tensor.master)
    assert isinstance(whole, DTensor)
    return whole.full_tensor()
