"""What tests assert of errors: the code. The sentence is for people and may change."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import pytest
from pydantic import ValidationError

Error = TypeVar("Error", bound=BaseException)


@contextmanager
def raises(
    kind: type[Error], *, code: str, match: str | None = None
) -> Iterator[pytest.ExceptionInfo[Error]]:
    """`pytest.raises` for an error with this code, its own or that of one of its fields.

    `match` is for what people need of a sentence: a figure, a name.
    """
    with pytest.raises(kind, match=match) as caught:
        yield caught
    found = codes(caught.value)
    assert code in found, f"{code} is not among {sorted(found)}: {caught.value}"


def codes(problem: Any) -> set[str]:
    """All codes of an error: its own, and those of its fields."""
    if isinstance(problem, ValidationError):
        return {item["type"] for item in problem.errors()}
    return {str(problem.code), *(field.code for field in getattr(problem, "errors", ()))}


def printed(stderr: str) -> list[str]:
    """The codes of the problems that a command printed."""
    return re.findall(r"^error\[([a-z0-9_]+)\]: \S", stderr, re.MULTILINE)
