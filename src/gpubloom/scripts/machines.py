"""On what a script runs: GPUs, how many, several machines, a person in front of it."""

from collections.abc import Iterator

from gpubloom.scripts.requirements import Detected, Evidence
from gpubloom.scripts.script import Script, detected
from gpubloom.scripts.values import Known
from gpubloom.scripts.workload import lightning_trainers

_GPU_FRAMEWORKS = (
    "torch", "tensorflow", "keras", "jax", "transformers", "lightning", "pytorch_lightning", "diffusers",
    "vllm", "mlx", "fastai", "timm", "sentence_transformers", "unsloth", "trl",
)  # fmt: skip
_MOST_GPUS = 4096
_COUNTS = ("num_gpus", "n_gpus", "ngpus", "gpus", "n_gpu", "gpus_per_node", "nproc_per_node", "num_devices")
_INTERACTIVE = ("gradio", "streamlit", "ipywidgets", "google.colab")
_WAYS: tuple[tuple[str, tuple[str, ...], tuple[str, ...]], ...] = (
    # What it is called, calls that show it, packages that show it.
    ("fsdp", ("FullyShardedDataParallel", "FSDP", "fully_shard", "FSDPStrategy"), ()),
    ("deepspeed", ("DeepSpeedPlugin", "DeepSpeedStrategy"), ("deepspeed",)),
    ("ddp", ("DistributedDataParallel", "DDP", "DDPStrategy"), ()),
    ("dataparallel", ("DataParallel",), ()),
    ("torch.distributed", ("init_process_group",), ()),
    ("accelerate", ("Accelerator",), ()),
    ("tf.distribute", ("MirroredStrategy", "MultiWorkerMirroredStrategy", "TPUStrategy"), ()),
    ("jax.pmap", ("pmap", "shard_map"), ()),
    ("horovod", (), ("horovod",)),
)


def parallelism(script: Script) -> tuple[Detected[str], ...]:
    """Ways in which it can use several GPUs."""
    found = []
    for name, calls, packages in _WAYS:
        call = next(iter(script.calls(*calls)), None) if calls else None
        evidence = script.evidence(call) if call is not None else script.imported(*packages)
        if not evidence and name == "deepspeed":
            evidence = _deepspeed_argument(script)
        if evidence:
            found.append(Detected[str](value=name, confidence="stated", evidence=evidence))
    for call in lightning_trainers(script):
        known = script.keyword(call, "strategy")
        if known is not None and isinstance(known.value, str) and known.value != "auto":
            found.append(detected(known))
    return tuple(found)


def _deepspeed_argument(script: Script) -> tuple[Evidence, ...]:
    for call in script.calls("TrainingArguments", "Seq2SeqTrainingArguments", "SFTConfig"):
        if script.has_keyword(call, "deepspeed"):
            return script.evidence(call)
    return ()


def uses_gpu(script: Script) -> Detected[bool]:
    device = _device(script)
    if device is not None:
        return device
    for call in script.calls("cuda"):
        return Detected(value=True, confidence="stated", evidence=script.evidence(call))
    evidence = script.imported(*_GPU_FRAMEWORKS)
    if evidence:
        return Detected(
            value=True,
            confidence="derived",
            evidence=evidence,
            reason="The script imports a library that uses GPUs.",
        )
    reason = "The script imports no library that uses GPUs."
    return Detected(value=False, confidence="derived", reason=reason)


def _device(script: Script) -> Detected[bool] | None:
    """What is said about the device, in a setting or in `.to(…)`."""
    candidates: list[Known | None] = [script.values.setting("device", "device_type", "accelerator")]
    candidates += [script.keyword(call, "accelerator") for call in lightning_trainers(script)]
    candidates += [script.keyword(call, "device", "tree_method", position=0) for call in script.calls("to")]
    candidates += [
        script.keyword(call, "device") for call in script.calls("XGBClassifier", "XGBRegressor", "XGBRanker")
    ]
    for known in candidates:
        if known is None or not isinstance(known.value, str):
            continue
        word = known.value.partition(":")[0].casefold()
        if word in {"cuda", "gpu", "mps", "xpu", "hip"}:
            return detected(Known(True, known.evidence, known.sure))
        if word == "cpu" and known.sure:
            return detected(Known(False, known.evidence))
    return None


def gpus(script: Script, needed: Detected[bool]) -> Detected[int]:
    if not needed.value:
        return Detected(value=0, confidence=needed.confidence, evidence=needed.evidence, reason=needed.reason)
    for known in _counts(script):
        if known.value == 0:
            return detected(known)
        if 1 <= known.value <= _MOST_GPUS:
            return detected(known)
    several = next(
        iter(script.calls("init_process_group", "DistributedDataParallel", "DDP", "initialize")), None
    )
    if several is not None:
        reason = (
            "The script can use several GPUs; set their number when you start it (torchrun --nproc-per-node)."
        )
        return Detected(value=1, confidence="assumed", evidence=script.evidence(several), reason=reason)
    return Detected(
        value=1,
        confidence="assumed",
        evidence=needed.evidence,
        reason="The script does not ask for more than one GPU.",
    )


def _counts(script: Script) -> Iterator[Known]:
    for command in script.commands:
        yield from _from_command(command.words, command.evidence)
    for call in lightning_trainers(script):
        known = script.keyword(call, "devices", "gpus")
        nodes = script.keyword(call, "num_nodes")
        if known is not None and (count := _count(known)) is not None:
            several = nodes.value if nodes is not None and isinstance(nodes.value, int) else 1
            yield Known(count * several, known.evidence, known.sure)
    for call in script.calls("spawn"):
        known = script.keyword(call, "nprocs")
        if known is not None and (count := _count(known)) is not None:
            yield Known(count, known.evidence, known.sure)
    for call in script.calls("DataParallel"):
        known = script.keyword(call, "device_ids")
        if known is not None and isinstance(known.value, list) and known.value:
            yield Known(len(known.value), known.evidence, known.sure)
    yield from _visible(script)
    for name in _COUNTS:
        known = script.values.setting(name)
        if known is not None and (count := _count(known)) is not None:
            yield Known(count, known.evidence, known.sure)
    for call in script.calls("LLM"):
        known = script.keyword(call, "tensor_parallel_size")
        if known is not None and (count := _count(known)) is not None:
            yield Known(count, known.evidence, known.sure)


def _visible(script: Script) -> Iterator[Known]:
    for facts in script.files:
        for name, node, line in facts.environment:
            if name != "CUDA_VISIBLE_DEVICES" or node is None:
                continue
            known = script.values.of(node, facts.source)
            if known is not None and isinstance(known.value, str):
                ids = [part for part in known.value.split(",") if part.strip() not in {"", "-1"}]
                yield Known(len(ids), (facts.source.evidence(line),))


def _count(known: Known) -> int | None:
    """A number of GPUs: 4, "4", [0, 1], "0,1"; None for all there are (-1, auto)."""
    value = known.value
    if isinstance(value, list):
        return len(value) or None
    if isinstance(value, str) and "," in value:
        return len([part for part in value.split(",") if part.strip()])
    if isinstance(value, str) and value.isdecimal() and len(value) < 5:
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return value
    return None


def _from_command(words: tuple[str, ...], evidence: Evidence) -> Iterator[Known]:
    """`torchrun --nproc_per_node=4`, `accelerate launch --num_processes 4`, `deepspeed --num_gpus=4`."""
    wanted = {"--nproc_per_node", "--nproc-per-node", "--num_processes", "--num_gpus", "--gpus"}
    for position, word in enumerate(words):
        name, given, value = word.partition("=")
        if name in wanted:
            text = value if given else words[position + 1] if position + 1 < len(words) else ""
            if text.isdecimal() and len(text) < 5:
                yield Known(int(text), (evidence,))


def multi_node(script: Script) -> Detected[bool]:
    for call in lightning_trainers(script):
        known = script.keyword(call, "num_nodes")
        if known is not None and isinstance(known.value, int) and known.value > 1:
            return detected(Known(True, known.evidence, known.sure))
    known = script.values.setting("num_nodes", "nnodes", "n_nodes", "num_machines", "nodes")
    if known is not None and isinstance(known.value, int) and known.value > 1:
        return detected(Known(True, known.evidence, known.sure))
    for call in script.calls("MultiWorkerMirroredStrategy"):
        return Detected(value=True, confidence="derived", evidence=script.evidence(call))
    for command in script.commands:
        for position, word in enumerate(command.words):
            name, given, value = word.partition("=")
            if name in {"--nnodes", "--num_machines"}:
                text = value if given else "".join(command.words[position + 1 : position + 2])
                if text.isdecimal() and int(text[:6]) > 1:
                    return Detected(value=True, confidence="stated", evidence=(command.evidence,))
    return Detected(
        value=False, confidence="assumed", reason="The script does not ask for more than one machine."
    )


def interactive(script: Script) -> Detected[bool]:
    """Whether a person works in it while it runs."""
    for facts in script.files:
        for full, line in facts.imports.values():
            if full.startswith(_INTERACTIVE):
                evidence = (facts.source.evidence(line),)
                return Detected(value=True, confidence="derived", evidence=evidence)
    for call in script.calls("input", "get_ipython"):
        if call.name in {"input", "get_ipython"}:
            return Detected(value=True, confidence="derived", evidence=script.evidence(call))
    if script.from_notebook:
        return Detected(value=True, confidence="assumed", reason="The file is a notebook.")
    return Detected(value=False, confidence="assumed", reason="A script runs unattended.")
