"""Prompts replayed: the likeliest answer of a model to each, as a person would ask for it."""

from gpubloom.engine.generate import TextModel
from gpubloom.engine.serving.answers import Answer, Wanted
from gpubloom.engine.serving.prompt_formatter import PromptFormatter


class NoRoom(ValueError):
    """A prompt that fills the model's context."""


def replay(
    model: TextModel, formatter: PromptFormatter, prompt: str, max_new_tokens: int, *, chats: bool
) -> str:
    """`chats`: the prompt is a question in a conversation, otherwise a text to continue."""
    ids = formatter.chat([{"role": "user", "content": prompt}]) if chats else formatter.completion(prompt)
    if len(ids) >= model.context_length:
        raise NoRoom(
            f"{prompt[:40]!r}… has {len(ids):,} tokens, which leaves no room for an answer: the model's "
            f"context holds {model.context_length:,}."
        )
    wanted = Wanted(max_new_tokens)
    if chats:
        wanted = Wanted(max_new_tokens, stop=formatter.turn_ends, lead=formatter.lead)
    return "".join(Answer(model, formatter, ids, wanted))
