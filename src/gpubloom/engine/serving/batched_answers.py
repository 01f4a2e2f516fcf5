"""Lets the answers of a loaded model advance together: chooses its decoder and gives the model a `stream`."""

from collections.abc import Generator, Sequence
from functools import partial
from typing import Any

from gpubloom.engine.decoding.batcher import Batcher
from gpubloom.engine.decoding.decode_batch import Decoder
from gpubloom.engine.decoding.llama_decoder import LlamaDecoder
from gpubloom.engine.decoding.transformers_decoder import TransformersDecoder
from gpubloom.engine.generate import TextModel
from gpubloom.engine.models import TransformerLM
from gpubloom.engine.pretrained_text import PretrainedText, tuned


def batch_answers(models: Sequence[TextModel]) -> Batcher | None:
    """For models that share one set of weights. None: their answers are computed one token each in turn."""
    decoder = _decoder(models[0])
    if decoder is None:
        return None
    batcher = Batcher(decoder)
    for model in models:
        is_tuned = isinstance(model, PretrainedText) and model.is_tuned and bool(model.adapter)
        settable: Any = model
        settable.stream = partial(_stream, batcher, is_tuned)
    return batcher


def _decoder(model: TextModel) -> Decoder | None:
    if isinstance(model, TransformerLM):
        return LlamaDecoder.of_own(model)
    if isinstance(model, PretrainedText):
        fast = LlamaDecoder.of_transformers(model.module, model.adapter, model.context_length)
        if fast is not None:
            return fast
        has_adapter = bool(model.adapter)
        return TransformersDecoder.of(model.module, model.context_length, tuned, has_adapter=has_adapter)
    return None


def _stream(
    batcher: Batcher, is_tuned: bool, prompt: Sequence[int], *arguments: Any, **options: Any
) -> Generator[int, None, None]:
    return batcher.tokens(prompt, *arguments, tuned=is_tuned, **options)
