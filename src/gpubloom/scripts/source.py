"""Text to syntax tree, within bounds: whatever is pasted in, reading it takes moments and never runs it."""

import ast
import io
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass

from gpubloom.scripts.requirements import Evidence, ScriptProblem

MOST_CHARACTERS = 128 * 1024
# Python 3.11 parses an f-string in time that grows with the square of its length.
_LONGEST_F_STRING = 20_000
_LONGEST_EVIDENCE = 160
_F_PREFIXES = ("f", "rf", "fr")


@dataclass(frozen=True)
class SourceFile:
    """One parsed file. `name` is None for the script itself."""

    name: str | None
    lines: tuple[str, ...]
    tree: ast.Module
    comments: tuple[tuple[int, str], ...]

    def evidence(self, line: int) -> Evidence:
        text = self.lines[line - 1].strip() if 0 < line <= len(self.lines) else ""
        if len(text) > _LONGEST_EVIDENCE:
            text = f"{text[:_LONGEST_EVIDENCE]}…"
        return Evidence(line=line, text=text, file=self.name)


def parse(text: str, name: str | None = None, *, title: str = "The script") -> SourceFile:
    """ScriptProblem: too long, or no Python; a sentence with the line, where `title` is the script."""
    where = name or title
    if len(text) > MOST_CHARACTERS:
        raise ScriptProblem(
            "script_too_large",
            f"{where} has {len(text):,} characters, above the limit of {MOST_CHARACTERS:,}. "
            "Move data from the script into a separate file.",
        )
    text = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    comments = tuple(_comments(text, where))
    try:
        tree = ast.parse(text)
    except SyntaxError as problem:
        line = problem.lineno
        raise ScriptProblem(
            "not_python", f"{where} is not valid Python in line {line}: {problem.msg}.", line
        ) from None
    except (RecursionError, MemoryError):
        # The parser's own limits on nesting.
        raise ScriptProblem("script_too_complex", f"{where} is nested too deeply: simplify it.") from None
    except ValueError as problem:
        raise ScriptProblem("not_python", f"{where} is not valid Python: {problem}.") from None
    return SourceFile(name, tuple(text.split("\n")), tree, comments)


def _comments(text: str, where: str) -> Iterator[tuple[int, str]]:
    """Comments with their lines; refuses what the parser would take minutes for."""
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.COMMENT:
                yield token.start[0], token.string
            elif token.type == tokenize.STRING and len(token.string) > _LONGEST_F_STRING:
                prefix = token.string[:3].casefold().partition("'")[0].partition('"')[0]
                if prefix in _F_PREFIXES:
                    raise ScriptProblem(
                        "script_too_complex",
                        f"{where} has an f-string of {len(token.string):,} characters in line "
                        f"{token.start[0]}, above the limit of {_LONGEST_F_STRING:,}.",
                        token.start[0],
                    )
    except (tokenize.TokenError, SyntaxError):
        # The parser stops at the same place and says why in better words.
        return
