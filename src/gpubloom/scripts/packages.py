"""Imports to pip's names and to frameworks."""

import sys
from collections.abc import Iterator

from gpubloom.scripts.requirements import Detected, Evidence
from gpubloom.scripts.script import Script

# Where the name to import is not the name to install.
_PIP_NAMES = {
    "Crypto": "pycryptodome",
    "IPython": "ipython",
    "OpenSSL": "pyOpenSSL",
    "PIL": "Pillow",
    "absl": "absl-py",
    "bs4": "beautifulsoup4",
    "cv2": "opencv-python-headless",
    "dateutil": "python-dateutil",
    "dotenv": "python-dotenv",
    "faiss": "faiss-cpu",
    "flash_attn": "flash-attn",
    "git": "GitPython",
    "huggingface_hub": "huggingface-hub",
    "hydra": "hydra-core",
    "ignite": "pytorch-ignite",
    "keras_nlp": "keras-nlp",
    "lightning_fabric": "lightning-fabric",
    "lm_eval": "lm-eval",
    # A part of ours.
    "metaflow_traincard": "gpubloom",
    "ml_collections": "ml-collections",
    "open_clip": "open-clip-torch",
    "orbax": "orbax-checkpoint",
    "pkg_resources": "setuptools",
    "pl_bolts": "lightning-bolts",
    "pytorch_lightning": "pytorch-lightning",
    "sentence_transformers": "sentence-transformers",
    "skimage": "scikit-image",
    "sklearn": "scikit-learn",
    "tensorflow_datasets": "tensorflow-datasets",
    "torch_geometric": "torch-geometric",
    "transformer_engine": "transformer-engine",
    "yaml": "PyYAML",
}
# pip's names by what they make of a script.
FRAMEWORKS = {
    "accelerate": "accelerate",
    "axolotl": "axolotl",
    "deepspeed": "deepspeed",
    "diffusers": "diffusers",
    "fastai": "fastai",
    "flax": "flax",
    "jax": "jax",
    "keras": "keras",
    "lightgbm": "lightgbm",
    "lightning": "lightning",
    "mlx": "mlx",
    "optax": "optax",
    "peft": "peft",
    "pytorch_lightning": "lightning",
    "sentence_transformers": "sentence-transformers",
    "sklearn": "scikit-learn",
    "tensorflow": "tensorflow",
    "timm": "timm",
    "torch": "pytorch",
    "torchtune": "torchtune",
    "torchvision": "torchvision",
    "transformers": "transformers",
    "trl": "trl",
    "unsloth": "unsloth",
    "vllm": "vllm",
    "xgboost": "xgboost",
}
# Part of a notebook service or of another package, not something to install.
_NOT_INSTALLED = {"__future__", "__main__", "google", "mpl_toolkits"}
# What people call their own files; a package of that name is hardly ever meant.
_OWN_FILES = {
    "model", "models", "utils", "util", "train", "config", "configs", "configurator", "data", "dataset",
    "dataloader", "trainer", "helpers", "common", "modules", "layers", "losses", "metrics", "network", "src",
    "prepare", "engine", "tokenizer", "modeling", "optim",
}  # fmt: skip
_PIP_FLAGS_WITH_VALUES = {"-r", "-c", "-i", "-f", "--index-url", "--extra-index-url", "--find-links", "-t"}


def frameworks(script: Script) -> tuple[Detected[str], ...]:
    """What the script is built on; tensorflow's keras counts as keras, too."""
    found: dict[str, Detected[str]] = {}
    for facts in script.files:
        for package, line in facts.packages.items():
            if (name := FRAMEWORKS.get(package)) is not None:
                evidence = (facts.source.evidence(line),)
                found.setdefault(name, Detected(value=name, confidence="stated", evidence=evidence))
        for full, line in facts.imports.values():
            if full.startswith("tensorflow.keras"):
                evidence = (facts.source.evidence(line),)
                found.setdefault("keras", Detected(value="keras", confidence="stated", evidence=evidence))
    return tuple(found.values())


def packages(script: Script) -> tuple[Detected[str], ...]:
    """What pip has to install: requirements that are written down, then what is imported besides."""
    found: dict[str, Detected[str]] = {}
    for requirement, evidence in [*_written(script), *_installed(script)]:
        found.setdefault(
            _plain(requirement), Detected(value=requirement, confidence="stated", evidence=(evidence,))
        )
    for facts in script.files:
        for package, line in facts.packages.items():
            if package in _NOT_INSTALLED or package in sys.stdlib_module_names:
                continue
            if package in script.modules or package in facts.local_imports:
                continue
            if package in _OWN_FILES:
                script.notes.append(
                    f"The script imports {package}, but {package}.py is missing: add this file."
                )
                continue
            name = _PIP_NAMES.get(package) or package
            evidence = facts.source.evidence(line)
            found.setdefault(_plain(name), Detected(value=name, confidence="derived", evidence=(evidence,)))
    return tuple(found.values())


def _written(script: Script) -> Iterator[tuple[str, Evidence]]:
    """requirements.txt beside the script, and the block of PEP 723 in it."""
    for name, content in script.other_files.items():
        if name.rpartition("/")[2] == "requirements.txt":
            for number, line in enumerate(content.split("\n")[:1000], start=1):
                text = line.partition("#")[0].strip()
                if text and not text.startswith("-"):
                    yield text, Evidence(line=number, text=text, file=name)
    inside = False
    for number, comment in script.main.source.comments:
        text = comment.removeprefix("#").strip()
        if text == "/// script":
            inside = True
        elif text == "///":
            inside = False
        elif inside and text.startswith(('"', "'")):
            yield text.strip("\"', "), script.main.source.evidence(number)


def _installed(script: Script) -> Iterator[tuple[str, Evidence]]:
    """`!pip install -q torch "transformers>=4.40"` of a notebook."""
    for command in script.commands:
        words = list(command.words)
        if "install" not in words or not any(word.endswith(("pip", "pip3")) for word in words[:4]):
            continue
        skip = False
        for word in words[words.index("install") + 1 :]:
            if skip or word.startswith("-"):
                skip = not skip and word in _PIP_FLAGS_WITH_VALUES
            elif word in {"&&", ";", "|", ">"}:
                break
            else:
                yield word, command.evidence


def _plain(requirement: str) -> str:
    """A requirement's name alone, in one spelling."""
    name = requirement
    for mark in "[<>=!~; @":
        name = name.partition(mark)[0]
    return name.strip().casefold().replace("_", "-")
