"""Likely causes of a failure: a code, a clause for people, and what to do."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Cause:
    """What probably made a run fail. `title`: a clause for "Likely cause: …"."""

    code: str
    title: str
    advice: str


_ALL = (
    Cause(
        "gpu_out_of_memory",
        "the GPU ran out of memory",
        "Use a smaller batch size or max sequence length, use gradient accumulation, or keep more "
        "of the model in host memory.",
    ),
    Cause(
        "cuda_allocation",
        "CUDA could not allocate memory, on the GPU or pinned on the host",
        "Look at `nvidia-smi` for other processes on the GPU, and at the free RAM. Then use a "
        "smaller batch size, or keep less in pinned memory.",
    ),
    Cause(
        "host_out_of_memory",
        "the machine ran out of memory (RAM)",
        "Use fewer data loader processes, a smaller batch size, or more RAM.",
    ),
    Cause(
        "shared_memory_full",
        "shared memory is full, or a mapped file became shorter",
        "Give the container more shared memory (--shm-size), use fewer data loader processes, and "
        "check that no file of the data changed during the run.",
    ),
    Cause(
        "disk_full",
        "the disk is full",
        "Delete old checkpoints or keep fewer of them, then resume.",
    ),
    Cause(
        "device_side_assert",
        "an index was out of range on the GPU",
        "Most often a token or a label is not smaller than the size of the vocabulary. Run one "
        "step on the CPU: it names the operation.",
    ),
    Cause(
        "token_out_of_range",
        "a token or a label is out of range",
        "Check that the tokenizer belongs to the model, and that all labels are smaller than the "
        "number of classes.",
    ),
    Cause(
        "illegal_memory_access",
        "a GPU kernel read or wrote memory that is not its own",
        "Set CUDA_LAUNCH_BLOCKING=1 and run again to see which operation it was. Update or turn "
        "off custom kernels.",
    ),
    Cause(
        "gpu_hardware",
        "the GPU reported a hardware error",
        "Save what is there and use another GPU. Tell the operator or the provider the error number.",
    ),
    Cause(
        "gpu_not_usable",
        "no usable GPU was found",
        "Check `nvidia-smi`, CUDA_VISIBLE_DEVICES, and that torch was built for this driver.",
    ),
    Cause(
        "cuda_after_fork",
        "CUDA was used in a process that was forked after CUDA had started",
        "Start worker processes with the start method `spawn`, or before the first use of the GPU.",
    ),
    Cause(
        "device_mismatch",
        "tensors are on different devices",
        "Move the batch and the model to the same device before the step.",
    ),
    Cause(
        "nccl_set_up",
        "NCCL could not be set up",
        "Give every process a GPU of its own (LOCAL_RANK), and run again with NCCL_DEBUG=INFO.",
    ),
    Cause(
        "lost_rank",
        "another training process stopped responding",
        "Look at the last events of the other ranks to find out which process stopped, and why.",
    ),
    Cause(
        "child_failed",
        "a process that this one started failed",
        "Read the first error in the log of that process; this one only waited for it.",
    ),
    Cause(
        "nan_loss",
        "the loss became NaN or infinite",
        "Resume from the last checkpoint with a lower learning rate, and check the data of the "
        "step that failed.",
    ),
    Cause(
        "data_exhausted",
        "there were no more batches",
        "Use more data, fewer steps, or start again from the first row after the last one.",
    ),
    Cause(
        "data_invalid",
        "a row of the data could not be read",
        "Correct or remove the row that the error names, then resume.",
    ),
    Cause(
        "data_loader_stuck",
        "a data loader process did not deliver a batch in time",
        "Check the storage that the data is on, and raise the timeout of the data loader.",
    ),
    Cause(
        "native_crash",
        "compiled code crashed",
        "The fault is in a library, not in Python. Run with PYTHONFAULTHANDLER=1 to see where, "
        "and update the library.",
    ),
    Cause(
        "illegal_instruction",
        "a library needs a newer processor",
        "Install builds of the libraries for this processor, or use a newer machine.",
    ),
    Cause(
        "killed",
        "the process was killed from outside",
        "Most often the machine had too little memory. Look at its memory at the end, and ask who "
        "else can end processes there.",
    ),
    Cause(
        "checkpoint_does_not_fit",
        "the checkpoint belongs to another model",
        "Load it with the settings that it was saved with: size, vocabulary, adapters.",
    ),
    Cause(
        "checkpoint_damaged",
        "a file of weights is damaged or incomplete",
        "Download or copy it again, or use an earlier checkpoint.",
    ),
    Cause(
        "checkpoint_unsafe",
        "a checkpoint holds Python objects that may run code",
        "Load a safetensors file instead, or allow the class if you trust its author.",
    ),
    Cause(
        "shape_mismatch",
        "tensors have shapes that do not fit together",
        "Check the length of the rows (padding, truncation) and the sizes of the layers.",
    ),
    Cause(
        "dtype_mismatch",
        "tensors have different types of numbers",
        "Convert the batch to the model's type, or use autocast.",
    ),
    Cause(
        "nothing_to_train",
        "the loss does not depend on any trainable parameter",
        "Check that parameters are not frozen, and that the loss is not computed under no_grad.",
    ),
    Cause(
        "missing_package",
        "a Python package is missing or has another version",
        "Install the version it needs.",
    ),
    Cause(
        "missing_library",
        "a shared library is missing",
        "Install the package that holds it, or set LD_LIBRARY_PATH.",
    ),
    Cause(
        "missing_column",
        "a row lacks a column",
        "Map the dataset's columns, or correct the name.",
    ),
    Cause(
        "file_not_found",
        "a file is missing",
        "Check the path. It must exist where the job runs.",
    ),
    Cause(
        "no_permission",
        "a file may not be read or written",
        "Change its owner or mode, or choose another path.",
    ),
    Cause(
        "read_only_disk",
        "the disk is read-only",
        "Choose a folder that can be written.",
    ),
    Cause(
        "too_many_open_files",
        "too many files are open",
        "Raise `ulimit -n`, use fewer data loader processes, or close files.",
    ),
    Cause(
        "port_in_use",
        "the port is in use",
        "Choose another port, or end the process that holds it.",
    ),
    Cause(
        "network",
        "a network connection failed",
        "Check the address and the connection, then resume.",
    ),
)

CAUSES = {cause.code: cause for cause in _ALL}


def cause_and_advice(error: Mapping[str, Any]) -> str:
    """The likely cause of an `error` event in words, and what to do; empty when nothing is known."""
    cause = CAUSES.get(error.get("cause") or "")
    likely = f"Likely cause: {cause.title}. " if cause else ""
    return f"{likely}{error.get('advice') or ''}".strip()


# Of processes that only noticed that another one was gone.
FOLLOWS = frozenset({"lost_rank", "child_failed"})
