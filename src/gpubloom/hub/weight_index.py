"""Entries of a model folder that could make a loader read outside of it, or run code of others.

Loaders of other libraries open every path that an index names, follow links, and get kernels from a hub. A
model folder may come from anybody, so each entry must be the plain name of a file in the same folder. This is
checked before any loader sees the folder.
"""

import json
from pathlib import Path
from typing import Any

from gpubloom.errors import InputError

ADAPTER_CONFIG = "adapter_config.json"
SINGLE_FILE = "model.safetensors"
INDEX_FILE = "model.safetensors.index.json"
_LARGEST_INDEX_BYTES = 256 << 20
_IMPLEMENTATIONS = frozenset(
    {"attn_implementation", "_attn_implementation", "experts_implementation", "_experts_implementation"}
)


class UnsafeModelError(InputError):
    """A model folder names a file outside of itself. `code` is stable; the sentence names no folder."""


def read_weight_index(index: Path) -> dict[str, str]:
    """File names by tensor names. Raises UnsafeModelError, ValueError or OSError for an invalid index."""
    if index.stat().st_size > _LARGEST_INDEX_BYTES:
        raise InputError("index_unreadable", f"{index.name} is too large to be an index of weights")
    content = json.loads(index.read_text(encoding="utf-8"))
    weight_map = content.get("weight_map") if isinstance(content, dict) else None
    if not isinstance(weight_map, dict):
        raise InputError("index_unreadable", f"{index.name} has no weight_map")
    if not all(isinstance(file, str) for file in weight_map.values()):
        raise InputError("index_unreadable", f"{index.name} has a file name that is not a string")
    for file in set(weight_map.values()):
        _must_be_in_folder(index, file)
    return dict(weight_map)


def check_model_folder(folder: Path) -> None:
    """UnsafeModelError when a loader that is given this folder could read files outside of it."""
    if (folder / ADAPTER_CONFIG).exists():
        raise UnsafeModelError(
            "adapter_in_model",
            f"A folder with {ADAPTER_CONFIG} holds an adapter: give the folder of a complete model.",
        )
    for index in sorted(folder.glob("*.index*.json")):
        try:
            read_weight_index(index)
        except UnsafeModelError:
            raise
        except (OSError, ValueError, RecursionError) as problem:
            raise UnsafeModelError(
                "index_unreadable", f"{index.name} cannot be read as an index of weights: {problem}."
            ) from None
    for path in sorted(folder.iterdir()):
        if _leads_out(path):
            raise UnsafeModelError(
                "weights_outside",
                f"{path.name[:80]!r} is a symbolic link out of the model folder: copy the file there.",
            )
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        # The loader reports this error.
        return
    check_model_config(config)


def check_model_config(config: Any) -> None:
    """UnsafeModelError when a config.json names weights of another folder, or code to run."""
    named = config.get("transformers_weights") if isinstance(config, dict) else None
    if named is not None and not _is_plain(str(named)):
        raise UnsafeModelError(
            "weights_outside", "transformers_weights in config.json must be a file name without a folder."
        )
    _refuse_kernels(config)


def _refuse_kernels(value: Any) -> None:
    """A name with a slash is a repository of compiled code, which transformers would download and run."""
    for name, inside in value.items() if isinstance(value, dict) else ():
        if name in _IMPLEMENTATIONS:
            names = inside.values() if isinstance(inside, dict) else [inside]
            if any("/" in str(each) for each in names):
                raise UnsafeModelError(
                    "remote_code",
                    f"{name} in config.json names code of a hub, which GPU Bloom never runs: remove it.",
                )
        else:
            _refuse_kernels(inside)


def _must_be_in_folder(index: Path, file: str) -> None:
    if not _is_plain(file):
        raise UnsafeModelError(
            "index_unsafe", f"{index.name} names {file[:80]!r}; it may name only files in its own folder."
        )
    if _leads_out(index.parent / file):
        raise UnsafeModelError(
            "index_unsafe", f"{index.name} names {file!r}, which is a symbolic link out of the model folder."
        )


def _leads_out(path: Path) -> bool:
    return path.is_symlink() and not any(path.resolve().is_relative_to(home) for home in _homes(path.parent))


def _is_plain(name: str) -> bool:
    return name not in {"", ".", ".."} and not any(sign in name for sign in ("/", "\\", "\0"))


def _homes(folder: Path) -> list[Path]:
    """Where a link in a model folder may lead: into the folder, or from a hub's cache to its own blobs."""
    real = folder.resolve()
    return [real, real.parents[1] / "blobs"] if real.parent.name == "snapshots" else [real]
