"""From a snapshot to files, piece by piece: nothing larger than a piece is ever held here."""

import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from gpubloom.engine.executors.blocks.snapshot import Part, Piece, Snapshot, SnapshotAbandoned
from gpubloom.engine.shards.sharding import Shard, Sharding, Stretch
from gpubloom.engine.shards.tensor_file import TensorFileWriter, bytes_of


def write_shards(folder: Path, snapshot: Snapshot, shardings: Sequence[Sharding]) -> dict[str, str]:
    """Writes all that a snapshot has, one sharding for each of its streams; sha256 by tensor file.

    Tensor files are safely on disk when this returns. On any error the snapshot is abandoned: training is
    held up no longer, and the folder is of no use.
    """
    checksums: dict[str, str] = {}
    problems: list[BaseException] = []
    with ThreadPoolExecutor(len(shardings), thread_name_prefix="checkpoint") as pool:
        writers = [pool.submit(_write, folder, snapshot, sharding) for sharding in shardings]
        for writer in writers:
            problem = writer.exception()
            if problem is None:
                checksums |= writer.result()
            else:
                problems.append(problem)
    if problems:
        # When one writer fails, the others are only told that it is over.
        raise min(problems, key=lambda problem: isinstance(problem, SnapshotAbandoned))
    return checksums


def write_index(folder: Path, sharding: Sharding) -> None:
    """Says which file holds what, where there are several."""
    if sharding.index is not None:
        text = json.dumps(sharding.index, indent=2) + "\n"
        (folder / sharding.index_file).write_text(text, encoding="utf-8")


def _write(folder: Path, snapshot: Snapshot, sharding: Sharding) -> dict[str, str]:
    files = _ShardFiles(folder, sharding)
    try:
        write_index(folder, sharding)
        for piece in snapshot.pieces(sharding.shards[0].stretches[0].part):
            files.write(piece)
        return files.close()
    except BaseException:
        snapshot.abandon()
        raise
    finally:
        files.discard()


class _ShardFiles:
    """The files of one sharding, one open at a time."""

    def __init__(self, folder: Path, sharding: Sharding) -> None:
        self._folder = folder
        self._shards = {stretch.block: shard for shard in sharding.shards for stretch in shard.stretches}
        self._stretches: dict[tuple[int, Part], list[Stretch]] = {}
        for shard in sharding.shards:
            for stretch in shard.stretches:
                self._stretches.setdefault((stretch.block, stretch.part), []).append(stretch)
        self._writer: TensorFileWriter | None = None
        self._checksums: dict[str, str] = {}

    def write(self, piece: Piece) -> None:
        writer = self._writer_of(self._shards[piece.block])
        piece_end = piece.start + len(piece.values)
        for stretch in self._stretches[piece.block, piece.part]:
            begin = max(stretch.start, piece.start)
            end = min(stretch.start + stretch.length, piece_end)
            if begin < end:
                values = piece.values[begin - piece.start : end - piece.start]
                writer.write(bytes_of(values))

    def close(self) -> dict[str, str]:
        if self._writer is not None:
            self._checksums[self._writer.path.name] = self._writer.close()
        return self._checksums

    def discard(self) -> None:
        if self._writer is not None:
            self._writer.discard()

    def _writer_of(self, shard: Shard) -> TensorFileWriter:
        if self._writer is None or self._writer.path.name != shard.file:
            self.close()
            self._writer = TensorFileWriter(self._folder / shard.file, shard.entries)
        return self._writer
