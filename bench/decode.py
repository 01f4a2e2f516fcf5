"""Tokens a second of a served model on one GPU, beside transformers and what the memory's bandwidth allows.

    python bench/decode.py                                   all rows
    python bench/decode.py 7b 7b:32 7b:nf4 7b:transformers   some of them: size, then what is different

Random weights in the shape of Qwen2.5 (or of a preset of the engine, such as 125m,
with a vocabulary of 50,304), a prompt of 512 tokens,
greedy. `32` (any number) is that many answers at once, `nf4` and `lora` what they say, `transformers` is its
generate with a static cache, compiled. The limit is the time to read the weights once.
"""

import argparse
import dataclasses
import json
import threading
import time
from typing import Any

import torch
from kernels import profiled

from gpubloom.engine.decoding.batcher import Batcher
from gpubloom.engine.decoding.operations import LoraTerm
from gpubloom.engine.decoding.sampling import GREEDY
from gpubloom.engine.models import TransformerLM
from gpubloom.engine.models.hugging_face.structure import find_layers
from gpubloom.engine.pretrained_text import PackedLinear, PretrainedText, to_four_bit
from gpubloom.engine.serving.batched_answers import batch_answers
from gpubloom.plan import PRESETS, named_config

ROWS = ["7b:transformers", "7b", "7b:32", "7b:lora", "7b:nf4", "125m", "125m:32"]
CUDA = torch.device("cuda")
RANK = 16
VOCABULARY = 50_304


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("rows", nargs="*", default=ROWS)
    parser.add_argument("--prompt", type=int, default=512)
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--context", type=int, default=4_096)
    parser.add_argument("--profile", action="store_true", help="name the kernels that took longest")
    options = parser.parse_args()
    bandwidth = _bandwidth()
    print(
        json.dumps({"gpu": torch.cuda.get_device_name(), "copy_tb_per_s": round(bandwidth / 1e12, 2)}),
        flush=True,
    )
    loaded: dict[str, Any] = {}
    for row in options.rows:
        size, _, kind = row.partition(":")
        if size not in loaded:
            loaded.clear()
            torch.cuda.empty_cache()
            loaded[size] = _model(size, options.context)
        model = loaded[size]
        if kind == "nf4":
            # From here on the matrices are packed.
            to_four_bit(model.module, CUDA, torch.bfloat16)
            torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        limit = bandwidth / _bytes_read(model)
        try:
            found = _transformers(model, options) if kind == "transformers" else _ours(model, kind, options)
        except Exception as problem:  # noqa: BLE001 - the other rows are measured all the same
            print(json.dumps({"decode": row, "failed": str(problem)[-300:]}), flush=True)
            continue
        streams = int(kind) if kind.isdigit() else 1
        found |= {
            "limit_tokens_per_s": round(streams * limit),
            "gpu_gb": round(torch.cuda.max_memory_reserved() / 1e9, 1),
        }
        print(json.dumps({"decode": row, **found}), flush=True)


def _model(size: str, context: int) -> Any:
    if size in PRESETS:
        shape = dataclasses.replace(PRESETS[size], vocab_size=VOCABULARY)
        return TransformerLM.create(shape, seed=0).to(CUDA, torch.bfloat16).eval()
    from transformers import CONFIG_MAPPING, AutoModelForCausalLM

    settings = named_config(f"qwen2.5-{size}") | {"max_position_embeddings": context}
    config = CONFIG_MAPPING[settings["model_type"]].from_dict(settings)
    with CUDA:
        module = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    return PretrainedText(module)


def _ours(model: Any, kind: str, options: argparse.Namespace) -> dict[str, Any]:
    tuned = kind == "lora"
    if isinstance(model, PretrainedText):
        model.adapter = _adapter(model.module) if tuned else {}
    began = time.perf_counter()
    batcher = batch_answers([model])
    assert batcher is not None
    try:
        streams = int(kind) if kind.isdigit() else 1
        _together(batcher, streams, options, tuned=tuned)
        first_use = time.perf_counter() - began
        times = [_together(batcher, streams, options, tuned=tuned) for _ in range(2)]
        rate, first = min(times, key=lambda each: -each[0])
        found: dict[str, Any] = {
            "tokens_per_s": round(rate, 1),
            "first_token_ms": round(1e3 * first, 1),
            "first_use_s": round(first_use, 2),
        }
        if options.profile:
            # The prompt is in it too.
            found["profile"] = profiled(lambda: _together(batcher, streams, options, tuned=tuned))
        return found
    finally:
        batcher.close()


def _together(
    batcher: Batcher, streams: int, options: argparse.Namespace, *, tuned: bool
) -> tuple[float, float]:
    """Tokens a second while all answers are being written, and seconds until the first token of all."""
    context = batcher._decoder.context_length
    prompt = min(options.prompt, context // 2)
    tokens = min(options.tokens, context - prompt)
    arrivals: list[list[float]] = [[] for _ in range(streams)]
    failures: list[Exception] = []

    def ask(index: int) -> None:
        # Each prompt begins differently, so nothing is shared.
        ids = [
            (index * 7919 + position * 31 + time.perf_counter_ns() % 97) % 1000 for position in range(prompt)
        ]
        try:
            for _ in batcher.tokens(ids, GREEDY, max_tokens=tokens, ends=frozenset(), tuned=tuned):
                arrivals[index].append(time.perf_counter())
        except Exception as problem:  # noqa: BLE001 - raised by whoever waits for the thread
            failures.append(problem)

    threads = [threading.Thread(target=ask, args=(index,)) for index in range(streams)]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    start, end = max(each[0] for each in arrivals), min(each[-1] for each in arrivals)
    counted = sum(sum(start < moment <= end for moment in each) for each in arrivals)
    return counted / (end - start), min(each[0] for each in arrivals) - began


def _transformers(model: PretrainedText, options: argparse.Namespace) -> dict[str, Any]:
    ids = torch.randint(0, 1000, (1, options.prompt), device=CUDA)

    def generate(tokens: int) -> float:
        torch.cuda.synchronize()
        began = time.perf_counter()
        model.module.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=tokens,
            min_new_tokens=tokens,
            do_sample=False,
            cache_implementation="static",
            pad_token_id=0,
        )
        torch.cuda.synchronize()
        return time.perf_counter() - began

    # One length throughout: another one would be another cache and another compilation.
    first_use = generate(options.tokens)
    generate(options.tokens)
    seconds = min(generate(options.tokens) for _ in range(2))
    return {"tokens_per_s": round(options.tokens / seconds, 1), "first_use_s": round(first_use, 2)}


def _adapter(module: Any) -> dict[str, LoraTerm]:
    path = find_layers(module)
    terms = {}
    for name, part in module.get_submodule(path).named_modules():
        if isinstance(part, torch.nn.Linear):
            a = torch.randn(RANK, part.in_features, device=CUDA, dtype=torch.bfloat16) * 0.01
            b = torch.randn(part.out_features, RANK, device=CUDA, dtype=torch.bfloat16) * 0.01
            terms[f"{path}.{name}"] = LoraTerm(a, b, 2.0)
    return terms


def _bytes_read(model: Any) -> int:
    """Of the weights that a step needs: all but the table of embeddings, unless the head is the same."""
    if isinstance(model, TransformerLM):
        shared = model.head.weight is model.embedding.weight
        table = model.embedding.weight
        total = sum(parameter.nbytes for parameter in model.parameters())
        return total if shared else total - table.nbytes
    module = model.module
    table, head = module.get_input_embeddings().weight, module.get_output_embeddings().weight
    total = sum(parameter.nbytes for parameter in module.parameters())
    packed = [part.packed for part in module.modules() if isinstance(part, PackedLinear)]
    total += sum(each.packed.nbytes + each.absmax.nbytes for each in packed)
    return total if head is table else total - table.nbytes


def _bandwidth() -> float:
    """Bytes read and written a second by the copy of a large tensor."""
    source = torch.empty(2 << 30, dtype=torch.uint8, device=CUDA)
    target = torch.empty_like(source)
    seconds = []
    for _ in range(5):
        torch.cuda.synchronize()
        began = time.perf_counter()
        target.copy_(source)
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - began)
    return 2 * source.nbytes / min(seconds)


if __name__ == "__main__":
    main()
