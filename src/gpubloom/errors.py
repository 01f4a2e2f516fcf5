"""Errors that people are told about. Each has a stable `code` for programs and a sentence for people.

The codes are listed in docs/errors.md; sentences may change, codes do not. A process that refuses its input
prints `error[code]: sentence` as its last line, and whoever started it reads both from there.

Beside the packages, not in one: TrainCard, the agent and the command line need it, alone and at once.
"""

import os
import re
import shlex
import string
import sys
from typing import Any, NoReturn, TypeGuard

_CODE = r"[a-z][a-z0-9_]{0,63}"
_LINE = re.compile(rf"error\[({_CODE})\]: (.*)", re.DOTALL)

# Characters of a path that mean nothing to a shell.
_PLAIN = f"{string.ascii_letters}{string.digits}/._-".encode()

# Of an exception that has no code of its own.
UNKNOWN = "failed"


class CodedError(Exception):
    """Base of all errors with a code; subclasses with one code set it in the class."""

    code: str = UNKNOWN

    @property
    def lines(self) -> list[str]:
        """What commands print of it: one line for each problem."""
        return [error_line(self.code, str(self))]


class InputError(CodedError, ValueError):
    """Something that a person can get wrong: a setting, a file, a folder."""

    def __init__(self, code: str, sentence: str) -> None:
        super().__init__(sentence)
        self.code = code

    def __reduce__(self) -> tuple[Any, ...]:
        # Exceptions are copied by calling the class with `args`, which hold the sentence alone.
        return _copy, (type(self), self.args, self.__dict__)


def _copy(kind: type[InputError], args: tuple[object, ...], state: dict[str, Any]) -> InputError:
    copy = kind.__new__(kind, *args)
    copy.__dict__.update(state)
    return copy


def code_of(problem: BaseException) -> str:
    """The code of any exception."""
    code = getattr(problem, "code", None)
    return code if isinstance(code, str) else UNKNOWN


def is_code(value: object) -> TypeGuard[str]:
    """Whether a value that somebody else wrote has the form of a code."""
    return isinstance(value, str) and re.fullmatch(_CODE, value) is not None


def error_line(code: str, sentence: str) -> str:
    """A problem as commands and processes print it."""
    return f"error[{code}]: {sentence}"


def shell_word(path: str | os.PathLike[str]) -> str:
    """A path as one word of a command that a sentence tells people to run, whatever its name contains."""
    text = os.fspath(path)
    text = f"./{text}" if text.startswith("-") else text
    try:
        text.encode()
    except UnicodeEncodeError:
        # Bytes that are no text cannot be printed; bash, ksh and zsh read them so.
        written = (chr(byte) if byte in _PLAIN else f"\\x{byte:02x}" for byte in os.fsencode(text))
        return f"$'{''.join(written)}'"
    return shlex.quote(text)


def not_text() -> InputError:
    """What to say of a UnicodeEncodeError: an option or file name has bytes that cannot be stored or sent."""
    return InputError(
        "not_utf8", "A file name or option is not UTF-8 text: rename the file, or type the option again."
    )


def exit_with(problem: Exception) -> NoReturn:
    """End this process because of invalid input: print the problem, exit with status 2."""
    sys.stderr.write(f"{error_line(code_of(problem), str(problem))}\n")
    sys.exit(2)


def read_error_line(line: str) -> InputError:
    """The problem that a process printed; any other text is its sentence."""
    found = _LINE.fullmatch(line.strip())
    return InputError(UNKNOWN, line) if found is None else InputError(found[1], found[2])
