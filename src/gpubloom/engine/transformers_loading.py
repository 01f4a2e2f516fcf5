"""load_causal_model, load_tokenizer: the one way from a model folder into transformers.

A model folder may come from anybody, and transformers opens many files that the files of a folder name. So
the folder is checked first (`check_model_folder`), and what transformers is asked for leaves no choice to the
folder: safetensors only, local files only, no code of the model. A tokenizer is made from tokenizer.json and
nothing else, because tokenizer_config.json may name other files.
"""

from pathlib import Path
from typing import Any

from gpubloom.datasets import ChatTemplate
from gpubloom.errors import InputError, shell_word
from gpubloom.hub.weight_index import check_model_folder


def load_causal_model(folder: Path, **options: Any) -> Any:
    """A language model of transformers. `options`: precision and devices, as from_pretrained takes them."""
    # transformers takes seconds to load, which a run of a preset must not pay.
    from safetensors import SafetensorError
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging

    check_model_folder(folder)
    # What it draws would stand in the middle of the text.
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        return AutoModelForCausalLM.from_pretrained(
            folder, **options, local_files_only=True, trust_remote_code=False, use_safetensors=True
        )
    except (OSError, KeyError) as problem:
        raise InputError("unreadable_file", f"{folder} cannot be read: {problem}") from None
    except AssertionError as problem:
        # torch says by it that a padding token is not an id of the vocabulary.
        raise InputError(
            "model_config_invalid", f"{folder}/config.json does not describe a model: {problem}."
        ) from None
    except SafetensorError as problem:
        raise InputError(
            "unreadable_file",
            f"The weights in {folder} cannot be read; a file may be incomplete: {problem}. To see which one, "
            f"run: bloom models check {shell_word(folder)}",
        ) from None


def load_tokenizer(folder: Path) -> Any:
    """A tokenizer of transformers, with the special tokens and the chat template of the folder."""
    from transformers import PreTrainedTokenizerFast

    file = folder / "tokenizer.json"
    if not file.is_file():
        raise InputError("tokenizer_not_found", f"The tokenizer file {file} does not exist.")
    template = ChatTemplate.from_folder(folder)
    try:
        return PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
            tokenizer_file=str(file), chat_template=template.source, **template.tokens
        )
    except Exception as problem:  # noqa: BLE001 - the library raises bare Exception for a bad file
        raise InputError("tokenizer_invalid", f"{file} is not a valid tokenizer.json: {problem}.") from None
