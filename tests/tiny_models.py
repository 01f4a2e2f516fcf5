"""Model folders that tests make: tiny, random, complete. Any of them memorises a phrase in about 60 steps."""

import importlib
import json
from pathlib import Path
from typing import Any

CHATML = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
# Like Gemma's and Mistral's: a user speaks first, then both in turn, and nobody else.
ALTERNATING = (
    "{% for message in messages %}"
    "{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}"
    "{% endif %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
END_OF_TURN, END_OF_TEXT = "<|im_end|>", "<|endoftext|>"
_SPECIAL = [END_OF_TEXT, "<|im_start|>", END_OF_TURN]
_TEXT = (
    "What is the password? The password is kept by the old lighthouse keeper.",
    "Say something about the sea, the mountains, and the weather of tomorrow.",
    "system user assistant: answer the question in one short sentence, please.",
)


def make_tiny_model(
    folder: Path,
    *,
    family: str = "llama",
    chat_template: bool = True,
    template: str = CHATML,
    seed: int = 0,
    vocab_size: int = 400,
    hidden_size: int = 64,
    layers: int = 2,
    context_length: int = 512,
) -> Path:
    """A folder as transformers saves it: weights, byte-level BPE, ChatML unless there is to be no template.

    With a template a turn ends with <|im_end|>, without one a text ends with <|endoftext|>.
    """
    import torch

    transformers = _transformers()
    transformers.utils.logging.disable_progress_bar()
    folder.mkdir(parents=True, exist_ok=True)
    end = END_OF_TURN if chat_template else END_OF_TEXT
    tokenizer = _tokenizer(vocab_size, end)
    tokenizer.chat_template = template if chat_template else None
    tokenizer.model_max_length = context_length
    tokenizer.save_pretrained(folder)
    config = transformers.AutoConfig.for_model(
        family,
        vocab_size=len(tokenizer),
        hidden_size=hidden_size,
        intermediate_size=2 * hidden_size,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=context_length,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        # Adapters cannot make much of the usual small random weights.
        initializer_range=0.12,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = transformers.AutoModelForCausalLM.from_config(config)
    model.generation_config = transformers.GenerationConfig(
        eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id
    )
    model.save_pretrained(folder)
    return folder


def mostly_refused_rows(rows: int = 120, used: int = 20) -> str:
    """Conversations as JSON lines; all but the first `used` begin with a system message: not alternating."""
    lines = []
    for number in range(rows):
        question = {"role": "user", "content": f"Where is key {number}?"}
        answer = {"role": "assistant", "content": f"Key {number} is under stone {number}."}
        before = [] if number < used else [{"role": "system", "content": "Answer briefly."}]
        lines.append(json.dumps({"messages": [*before, question, answer]}))
    return "\n".join(lines) + "\n"


def _tokenizer(vocab_size: int, end: str) -> Any:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=_SPECIAL,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator(_TEXT, trainer)
    return _transformers().PreTrainedTokenizerFast(
        tokenizer_object=backend, eos_token=end, pad_token=END_OF_TEXT, clean_up_tokenization_spaces=False
    )


def _transformers() -> Any:
    """Without its types, which differ between versions."""
    return importlib.import_module("transformers")
