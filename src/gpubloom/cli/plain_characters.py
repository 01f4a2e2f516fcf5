"""Output in a terminal that is not UTF-8: what its encoding lacks is written in ASCII characters.

Charts are drawn with braille dots and bars with blocks. As an error handler of the output's encoding, one
function covers every command, and a terminal that can show a character still gets it.
"""

import codecs
import unicodedata

_NAME = "bloom_plain"
_BRAILLE = 0x2800
# The four heights of a braille character, from the top, in both of its columns.
_HEIGHTS = (0x01 | 0x08, 0x02 | 0x10, 0x04 | 0x20, 0x40 | 0x80)
_PLAIN = {
    "█": "#",
    "▓": "=",
    "▒": "+",
    "▚": "*",
    "░": ":",
    "━": "=",
    "╸": "=",
    "╺": "=",
    "·": "-",
    "–": "-",
    "—": "-",
    "…": "...",
    "×": "x",
    "→": "->",
    "±": "+-",
    "∞": "inf",
    "√": "sqrt",
    "✗": "x",
    "†": "^",
    "°": "",
    "⟦": "[[",
    "⟧": "]]",
    "“": '"',
    "”": '"',
    "‘": "'",
    "’": "'",
}


def in_plain_characters() -> str:
    """The name of the error handler, for `errors=` of an output."""
    codecs.register_error(_NAME, _replace)
    return _NAME


def _replace(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(map(_plain, error.object[error.start : error.end])), error.end


def _plain(character: str) -> str:
    dots = ord(character) - _BRAILLE
    if 0 <= dots < 256:
        top, upper, lower, bottom = (bool(dots & height) for height in _HEIGHTS)
        if (top or upper) and (lower or bottom):
            return "|" if upper and lower and (top or bottom) else ":"
        return "'" if top else "-" if upper or lower else "."
    if (known := _PLAIN.get(character)) is not None:
        return known
    # Letters lose their accents.
    return unicodedata.normalize("NFKD", character).encode("ascii", "ignore").decode() or "?"
