"""Which trainers can run a config on this machine, and what a person has to do for those that cannot.

Looks at what is installed, not at what it does: nothing heavy is imported, so that a server can ask on every
request. Unsloth accepts other versions of the same libraries than the rest of GPU Bloom and changes them when
it is imported, so it lives in an environment of its own that BLOOM_UNSLOTH_PYTHON names.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from gpubloom.plan.config import BackendName, TrainConfig
from gpubloom.plan.hardware import detect_hardware

UNSLOTH_PYTHON = "BLOOM_UNSLOTH_PYTHON"

# The extra `trl`: package and the oldest version that is known to work.
TRL_NEEDS: Mapping[str, str] = {
    "torch": "2.11",
    "transformers": "5.17",
    "trl": "1.15",
    "peft": "0.18",
    "datasets": "4.8",
    "accelerate": "1.10",
}
UNSLOTH_NEEDS: Mapping[str, str] = {"gpubloom": "0", "unsloth": "0", **TRL_NEEDS}

_BRINGS: Mapping[BackendName, str] = {
    "engine": (
        "The default. Trains models larger than GPU memory, plans memory and time before the start, saves "
        "checkpoints during training, and resumes exactly."
    ),
    "trl": (
        "Hugging Face's SFTTrainer with PEFT and bitsandbytes, on the same tokens in the same order as "
        "GPU Bloom's engine. Choose it if your results must come from these libraries. The model must fit on "
        "one GPU."
    ),
    "unsloth": (
        "TRL with Unsloth's kernels: usually faster and with less memory than plain TRL, on one CUDA GPU, "
        "for the architectures that Unsloth supports."
    ),
}


@dataclass(frozen=True)
class Backend:
    """One trainer. `reason`: why it cannot run here, and what to do. `python`: an interpreter of its own."""

    name: BackendName
    available: bool
    reason: str | None
    brings: str
    python: str | None = None


def available_backends() -> list[Backend]:
    """All that there are, the default first."""
    trl, unsloth = _trl_is_missing(), _unsloth_is_missing()
    return [
        Backend("engine", True, None, _BRINGS["engine"]),
        Backend("trl", trl is None, trl, _BRINGS["trl"]),
        Backend("unsloth", unsloth is None, unsloth, _BRINGS["unsloth"], _unsloth_python()),
    ]


def interpreter_for(config: TrainConfig) -> str | None:
    """The Python that a run of this config must be started with; None: the one that GPU Bloom runs in."""
    return _unsloth_python() if config.backend == "unsloth" else None


def _trl_is_missing() -> str | None:
    found = {name: _installed_here(name) for name in TRL_NEEDS}
    if (lacking := _lacking(TRL_NEEDS, found)) is None:
        return None
    return f"{lacking}. Install the extra trl: pip install 'gpubloom[trl]'."


def _unsloth_is_missing() -> str | None:
    if not detect_hardware().gpus:
        return "Unsloth needs a CUDA GPU, and this machine has none: use backend engine or trl."
    python = _unsloth_python()
    if python is None:
        return (
            "Unsloth needs a separate Python environment: create one, install gpubloom[trl] and unsloth in "
            f"it, and set {UNSLOTH_PYTHON} to its Python interpreter."
        )
    if not os.access(python, os.X_OK):
        return (
            f"{UNSLOTH_PYTHON} is {python}, which is not an executable file: set it to the Python "
            "interpreter of an environment."
        )
    folders = _site_packages(Path(python))
    if not folders:
        return (
            f"{UNSLOTH_PYTHON} is {python}, which is not in a Python environment: there is no site-packages "
            "folder."
        )
    found = {
        _plain(each.metadata["Name"]): each.version for each in metadata.distributions(path=list(folders))
    }
    if (lacking := _lacking(UNSLOTH_NEEDS, found)) is None:
        return None
    install = f"{python} -m pip install 'gpubloom[trl]' unsloth"
    return f"In the environment of {python}: {lacking}. Install the missing packages: {install}."


def _unsloth_python() -> str | None:
    return os.environ.get(UNSLOTH_PYTHON) or None


def _site_packages(python: Path) -> list[str]:
    """Where an environment's packages lie; not resolved, as a venv's interpreter links to another place."""
    prefix = python.parent.parent
    candidates = [*prefix.glob("lib*/python3*/site-packages"), prefix / "Lib" / "site-packages"]
    return [str(folder) for folder in candidates if folder.is_dir()]


def _installed_here(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _lacking(needs: Mapping[str, str], found: Mapping[str, str | None]) -> str | None:
    """What is absent or too old, in words."""
    absent = [name for name in needs if found.get(name) is None]
    old = [
        f"{name} {version} is too old (at least {least} is needed)"
        for name, least in needs.items()
        if (version := found.get(name)) is not None and _numbers(version) < _numbers(least)
    ]
    parts = [f"{', '.join(absent)} {'is' if len(absent) == 1 else 'are'} not installed"] if absent else []
    return "; ".join([*parts, *old]) or None


def _numbers(version: str) -> tuple[int, ...]:
    """The leading numbers of a version; what follows them (rc1, +cpu) does not decide here."""
    numbers: list[int] = []
    for part in version.partition("+")[0].split("."):
        if not part.isdigit():
            break
        numbers.append(int(part))
    return tuple(numbers)


def _plain(name: str) -> str:
    return name.lower().replace("_", "-")
