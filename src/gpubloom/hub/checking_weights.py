"""The weights of a model folder against its config.json, by the headers of the files alone."""

import re
from collections.abc import Iterable
from pathlib import Path

from gpubloom.hub.findings import Tell
from gpubloom.hub.weight_headers import TRAINABLE_TYPES, HeldTensor, Truncated, read_header
from gpubloom.hub.weight_index import UnsafeModelError, check_model_folder, read_weight_index
from gpubloom.plan.decoder import DecoderShape

SINGLE_FILE = "model.safetensors"
INDEX_FILE = "model.safetensors.index.json"
PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".h5", ".msgpack")
_EMBEDDINGS = ("embed_tokens.weight", "wte.weight", "word_embeddings.weight", "embed_in.weight")
# A broken model is broken in many places; a person needs to see the first of them.
_NAMED = 5


def check_weights(folder: Path, shape: DecoderShape | None, tell: Tell) -> int:
    """Says what is wrong with the weights; the number of values in them."""
    try:
        check_model_folder(folder)
    except UnsafeModelError as problem:
        tell(problem.code, "error", str(problem))
        return 0
    tensors = _held(folder, tell)
    if tensors is None:
        return 0
    _check_types(tensors, tell)
    if shape is not None:
        _check_shapes(tensors, shape, tell)
    return sum(tensor.length for tensor in tensors.values())


def _held(folder: Path, tell: Tell) -> dict[str, HeldTensor] | None:
    """All tensors by name; None when they cannot be listed."""
    if (folder / INDEX_FILE).is_file():
        return _held_by_index(folder, tell)
    if (folder / SINGLE_FILE).is_file():
        return _read(folder / SINGLE_FILE, tell)
    pickles = sorted(path.name for path in folder.iterdir() if path.suffix in PICKLES)
    if pickles:
        tell(
            "only_pickles",
            "error",
            f"The weights are in {_listed(pickles)}, a format that can run code: save the model as "
            "safetensors (save_pretrained does), or take a revision that has them.",
        )
        return None
    tell(
        "weights_missing",
        "error",
        f"There is neither {SINGLE_FILE} nor {INDEX_FILE}: the weights are missing.",
    )
    return None


def _held_by_index(folder: Path, tell: Tell) -> dict[str, HeldTensor] | None:
    try:
        files = read_weight_index(folder / INDEX_FILE)
    except (OSError, ValueError, RecursionError) as problem:
        tell("index_unreadable", "error", f"{INDEX_FILE} cannot be read: {problem!r}.")
        return None
    whole = True
    tensors: dict[str, HeldTensor] = {}
    for file in sorted(set(files.values())):
        if not (folder / file).is_file():
            tell("shard_missing", "error", f"{file} is missing, although {INDEX_FILE} names it.")
            whole = False
            continue
        held = _read(folder / file, tell)
        whole = whole and held is not None
        tensors |= held or {}
    if not whole:
        return None
    if absent := [name for name, file in files.items() if name not in tensors or tensors[name].file != file]:
        tell(
            "tensor_missing",
            "error",
            f"{INDEX_FILE} names tensors that the files do not hold: {_listed(absent)}.",
        )
        return None
    return tensors


def _read(path: Path, tell: Tell) -> dict[str, HeldTensor] | None:
    try:
        return read_header(path)
    except Truncated as problem:
        tell("file_truncated", "error", f"{path.name} is incomplete: {problem}. Fetch or copy it again.")
    except (OSError, ValueError) as problem:
        tell("file_damaged", "error", f"{path.name} is no safetensors file: {problem}.")
    return None


def _check_types(tensors: dict[str, HeldTensor], tell: Tell) -> None:
    others = [each for each in tensors.values() if each.dtype not in TRAINABLE_TYPES and len(each.shape) > 1]
    if others:
        kinds = _listed(sorted({each.dtype for each in others}))
        tell(
            "quantized",
            "error",
            f"{len(others)} tensors are {kinds}: these weights are quantized. Start from the unquantized "
            "model; qlora makes its own 4-bit copy.",
        )


def _check_shapes(tensors: dict[str, HeldTensor], shape: DecoderShape, tell: Tell) -> None:
    absent, misshapen = [], []
    embedding = [each for name, each in tensors.items() if name.endswith(_EMBEDDINGS)]
    if not embedding:
        absent.append("the token embedding")
    elif embedding[0].shape != (wanted := (shape.vocab_size, shape.hidden_size)):
        misshapen.append(f"{embedding[0].name} has {embedding[0].shape} instead of {wanted}")
    by_layer = _by_layer(tensors)
    for index, layer in enumerate(shape.layers):
        own = by_layer.get(index, {})
        for linear in layer.linears:
            if linear.copies > 1:
                continue
            found = [each for path, each in own.items() if _is_at(path, linear.name)]
            outputs_inputs = (linear.outputs, linear.inputs)
            # GPT-2 keeps its matrices as (in, out).
            expected = outputs_inputs[::-1] if shape.family == "gpt2" else outputs_inputs
            if not found:
                absent.append(f"{linear.name} of layer {index}")
            elif len(found) == 1 and found[0].shape != expected:
                misshapen.append(f"{found[0].name} has {found[0].shape} instead of {expected}")
    if absent:
        tell("tensor_missing", "error", f"The weights lack what config.json describes: {_listed(absent)}.")
    if misshapen:
        tell("tensor_shape", "error", f"The weights do not have config.json's sizes: {_listed(misshapen)}.")
    held = sum(each.length for each in tensors.values())
    if not absent and not misshapen and held < shape.parameters:
        tell(
            "weights_incomplete",
            "error",
            f"The files hold {held:,} values, but config.json describes {shape.parameters:,}.",
        )


def _by_layer(tensors: dict[str, HeldTensor]) -> dict[int, dict[str, HeldTensor]]:
    """Matrices by the number of their layer, then by their path within it."""
    layers: dict[int, dict[str, HeldTensor]] = {}
    for name, tensor in tensors.items():
        if match := re.search(r"(?:^|\.)(?:layers|h)\.(\d+)\.(.+)\.weight$", name):
            layers.setdefault(int(match[1]), {})[match[2]] = tensor
    return layers


def _is_at(path: str, name: str) -> bool:
    return path == name or path.endswith(f".{name}")


def _listed(names: Iterable[str]) -> str:
    some = list(names)
    more = f" and {len(some) - _NAMED} more" if len(some) > _NAMED else ""
    return ", ".join(some[:_NAMED]) + more
