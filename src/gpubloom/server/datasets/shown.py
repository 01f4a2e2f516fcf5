"""Values of strangers' rows as they can be shown: plain JSON, of bounded length and depth."""

import json
import math
from collections.abc import Iterable
from typing import Any

from gpubloom.datasets import Piece

_MOST_CHARACTERS = 20_000
_MOST_ITEMS = 200
_LONGEST_NAME = 200
_DEEPEST = 24


class Shortened:
    """Shows one row; `cut` says whether something was left out."""

    def __init__(self) -> None:
        self._left = _MOST_CHARACTERS
        self.cut = False

    def value(self, value: Any, depth: int = 0) -> Any:
        """A value as plain JSON."""
        match value:
            case None | bool() | int():
                return value if not isinstance(value, int) or abs(value) < 2**63 else str(value)
            case float():
                return value if math.isfinite(value) else str(value)
            case str():
                return self.text(value)
            case bytes():
                return f"<{len(value):,} bytes>"
            case list() | tuple() if depth < _DEEPEST:
                self.cut |= len(value) > _MOST_ITEMS
                return [self.value(item, depth + 1) for item in value[:_MOST_ITEMS] if self._left > 0]
            case dict() if depth < _DEEPEST:
                self.cut |= len(value) > _MOST_ITEMS
                return {
                    readable(str(name)[:_LONGEST_NAME]): self.value(item, depth + 1)
                    for name, item in list(value.items())[:_MOST_ITEMS]
                }
            case list() | tuple() | dict():
                return self.text(json.dumps(value, default=str)[: self._left + 1])
            case _:
                return self.text(str(value))

    def text(self, text: str) -> str:
        """A text, as far as there is room for it."""
        shown = text[: self._left]
        self.cut |= len(shown) < len(text)
        self._left -= len(shown)
        return readable(shown + "…" if len(shown) < len(text) else shown)

    def pieces(self, pieces: Iterable[Piece]) -> list[dict[str, Any]]:
        """What the model sees, as far as there is room for it."""
        self._left = _MOST_CHARACTERS
        shown = []
        for piece in pieces:
            shown.append({"text": self.text(piece.text), "trained": piece.trained})
            if self._left <= 0:
                self.cut = True
                break
        return shown


def readable(text: str) -> str:
    """Without halves of characters, which have no UTF-8 form, and without NUL, which databases refuse."""
    return text.encode("utf-8", "replace").decode().replace("\x00", "\N{SYMBOL FOR NULL}")
