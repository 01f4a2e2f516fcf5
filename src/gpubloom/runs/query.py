"""The filter language of the run list: `lr > 1e-4 and status = failed`.

    expression := and-term ("or" and-term)*
    and-term   := term ("and" term)*
    term       := "not" term | "(" expression ")" | comparison | "text in quotes"
    comparison := field operator value | field "in" "(" value, … ")"
    operator   := = != < <= > >= ~ !~

`~` means "contains". A text in quotes alone searches names, tags and notes. A field is a column of the run
list (`table.Columns` says which there are). A run without the field does not match, except with `!=` and
`!~`; `field = none` finds the runs without it. Names and texts are compared without regard to case.
"""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, NoReturn, Protocol

from gpubloom.errors import InputError

Value = float | str | bool | None
_LONGEST = 2_000
_DEEPEST = 40

_TOKEN = re.compile(
    r"""\s*(?:
      (?P<text>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')
    | (?P<mark>[(),]|!=|<=|>=|!~|==|[=<>~])
    | (?P<word>[^\s(),=<>~!"']+)
    )""",
    re.VERBOSE,
)
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(s|m|min|h|d)", re.ASCII)
_SECONDS = {"s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}(?:T\d{2}:\d{2}(?::\d{2})?Z?)?", re.ASCII)
_OPERATORS = frozenset({"=", "==", "!=", "<", "<=", ">", ">=", "~", "!~"})
_KEYWORDS = frozenset({"and", "or", "not", "in"})


class QueryError(InputError):
    """A filter that cannot be read. `position` counts characters from 0."""

    def __init__(self, code: str, sentence: str, position: int) -> None:
        super().__init__(code, f"{sentence} (at character {position + 1})")
        self.position = position


FieldKind = Literal["plain", "date", "duration", "list"]


@dataclass(frozen=True)
class Field:
    """A column by its full name, and how to read it from a run."""

    name: str
    kind: FieldKind
    read: Callable[[Any], Any]


class Resolver(Protocol):
    """Finds the column that a name in a filter means; None: there is none, and `missing` says so."""

    def find(self, name: str) -> Field | None: ...

    def missing(self, name: str) -> str: ...


Test = Callable[[Any], bool]


@dataclass(frozen=True)
class _Token:
    kind: Literal["text", "mark", "word", "end"]
    text: str
    position: int


def compile_query(text: str, columns: Resolver, *, search: Callable[[Any], str]) -> Test:
    """A test for runs. `search`: what a text in quotes alone looks through. QueryError: it cannot be read."""
    if len(text) > _LONGEST:
        raise QueryError(
            "invalid_query", f"The filter is longer than {_LONGEST:,} characters. Shorten it.", _LONGEST
        )
    if not text.strip():
        return lambda run: True
    return _Parser(_tokens(text), columns, search).parse()


def _tokens(text: str) -> list[_Token]:
    found = []
    position = 0
    end = len(text.rstrip())
    while position < end:
        match = _TOKEN.match(text, position)
        if match is None:
            start = position + len(text[position:]) - len(text[position:].lstrip())
            if text[start] in "\"'":
                raise QueryError(
                    "invalid_query", f"The text that begins with {text[start]} has no end. Close it.", start
                )
            raise QueryError(
                "invalid_query", f"{text[start]!r} has no meaning here. Write `not` or !=.", start
            )
        kind = match.lastgroup
        assert kind in {"text", "mark", "word"}
        found.append(_Token(kind, match[kind], match.start(kind)))  # type: ignore[arg-type]
        position = match.end()
    found.append(_Token("end", "", end))
    return found


class _Parser:
    def __init__(self, tokens: list[_Token], columns: Resolver, search: Callable[[Any], str]) -> None:
        self._tokens, self._columns, self._search = tokens, columns, search
        self._at = 0
        self._depth = 0

    def parse(self) -> Test:
        test = self._or()
        if self._next.kind != "end":
            self._fail(f"Write `and` or `or` before {self._next.text!r}.")
        return test

    @property
    def _next(self) -> _Token:
        return self._tokens[self._at]

    def _take(self) -> _Token:
        token = self._next
        self._at += token.kind != "end"
        return token

    def _takes(self, word: str) -> bool:
        token = self._next
        if token.kind in {"word", "mark"} and token.text.lower() == word:
            self._at += 1
            return True
        return False

    def _fail(self, sentence: str, token: _Token | None = None) -> NoReturn:
        raise QueryError("invalid_query", sentence, (token or self._next).position)

    def _or(self) -> Test:
        tests = [self._and()]
        while self._takes("or"):
            tests.append(self._and())
        return tests[0] if len(tests) == 1 else lambda run: any(test(run) for test in tests)

    def _and(self) -> Test:
        tests = [self._term()]
        while self._takes("and"):
            tests.append(self._term())
        return tests[0] if len(tests) == 1 else lambda run: all(test(run) for test in tests)

    def _term(self) -> Test:
        self._depth += 1
        if self._depth > _DEEPEST:
            self._fail(f"The filter has more than {_DEEPEST} levels of parentheses. Simplify it.")
        try:
            if self._takes("not"):
                inner = self._term()
                return lambda run: not inner(run)
            if self._takes("("):
                grouped = self._or()
                if not self._takes(")"):
                    self._fail("A closing parenthesis is missing.")
                return grouped
            return self._comparison()
        finally:
            self._depth -= 1

    def _comparison(self) -> Test:
        token = self._take()
        if token.kind == "text":
            wanted = _unquoted(token.text).casefold()
            search = self._search
            return lambda run: wanted in search(run).casefold()
        if token.kind != "word" or token.text.lower() in _KEYWORDS:
            self._fail("The name of a column is missing, such as lr or status.", token)
        field = self._field(token)
        if self._takes("in"):
            return self._member(field)
        operator = self._take()
        if operator.text not in _OPERATORS:
            self._fail(f"Write an operator after {token.text}: = != < <= > >= ~ or in.", operator)
        return _compare(field, operator.text, self._value(field, operator.text))

    def _field(self, token: _Token) -> Field:
        field = self._columns.find(token.text)
        if field is None:
            raise QueryError("unknown_column", self._columns.missing(token.text), token.position)
        return field

    def _member(self, field: Field) -> Test:
        if not self._takes("("):
            self._fail("Write the values in parentheses: status in (failed, cancelled).")
        tests = [_compare(field, "=", self._value(field, "="))]
        while self._takes(","):
            tests.append(_compare(field, "=", self._value(field, "=")))
        if not self._takes(")"):
            self._fail("A closing parenthesis is missing.")
        return lambda run: any(test(run) for test in tests)

    def _value(self, field: Field, operator: str) -> "_Wanted":
        token = self._take()
        if token.kind not in {"text", "word"}:
            self._fail("A value is missing.", token)
        text = _unquoted(token.text) if token.kind == "text" else token.text
        if operator in {"~", "!~"}:
            return _Wanted(text, text, 0.0)
        if token.kind == "word" and text.lower() in {"none", "null"}:
            return _Wanted(None, text, 0.0)
        if field.kind == "date":
            return self._date(text, token)
        if field.kind == "duration":
            match = _DURATION.fullmatch(text)
            number = _number(text) if match is None else float(match[1]) * _SECONDS[match[2]]
            if not isinstance(number, float):
                self._fail(f"{text} is not a length of time. Write 90s, 30m, 2h or 1d.", token)
            return _Wanted(number, text, 0.0)
        if token.kind == "text":
            return _Wanted(text, text, 0.0)
        return _Wanted(_number(text), text, 0.0)

    def _date(self, text: str, token: _Token) -> "_Wanted":
        if (match := _DURATION.fullmatch(text)) is not None:
            ago = timedelta(seconds=float(match[1]) * _SECONDS[match[2]])
            return _Wanted((datetime.now(UTC) - ago).timestamp(), text, 0.0)
        try:
            if _DATE.fullmatch(text) is None:
                raise ValueError
            moment = datetime.fromisoformat(text)
        except (ValueError, OverflowError):
            self._fail(f"{text} is not a date. Write 2026-11-01, or 7d for seven days ago.", token)
        moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        # A day is compared as a whole.
        return _Wanted(moment.timestamp(), text, 86_400.0 if "T" not in text else 1.0)


@dataclass(frozen=True)
class _Wanted:
    """A value of a filter. `span`: a date stands for so many seconds."""

    value: Value
    text: str
    span: float


def _unquoted(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text[1:-1])


def _number(text: str) -> Value:
    if text.lower() in {"true", "false"}:
        return text.lower() == "true"
    try:
        return float(text.replace("_", ""))
    except ValueError:
        return text


def _compare(field: Field, operator: str, wanted: _Wanted) -> Test:
    read = field.read
    if operator in {"~", "!~"}:
        part = wanted.text.casefold()
        if operator == "~":
            return lambda run: any(part in text for text in _texts(read(run)))
        return lambda run: not any(part in text for text in _texts(read(run)))
    if operator in {"=", "=="}:
        return lambda run: _equal(read(run), wanted)
    if operator == "!=":
        return lambda run: not _equal(read(run), wanted)
    order = _ORDERS[operator]
    return lambda run: _ordered(read(run), wanted, order)


def _texts(value: Any) -> list[str]:
    if value is None:
        return []
    values = value if isinstance(value, list | tuple) else [value]
    return [str(each).casefold() for each in values]


def _equal(value: Any, wanted: _Wanted) -> bool:
    if isinstance(value, list | tuple):
        if wanted.value is None:
            return not value
        return wanted.text.casefold() in _texts(value)
    if value is None or wanted.value is None:
        return value is None and wanted.value is None
    if isinstance(value, bool) or isinstance(wanted.value, bool):
        return str(value).lower() == str(wanted.value).lower()
    if isinstance(value, int | float) and isinstance(wanted.value, float):
        if wanted.span:
            return wanted.value <= value < wanted.value + wanted.span
        # 1e-4 that went through another program may be 0.00010000000000000001.
        both_nan = math.isnan(value) and math.isnan(wanted.value)
        return both_nan or math.isclose(value, wanted.value, rel_tol=1e-9)
    return str(value).casefold() == wanted.text.casefold()


_ORDERS: dict[str, Callable[[float, float], bool]] = {
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}


def _ordered(value: Any, wanted: _Wanted, order: Callable[[float, float], bool]) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    if isinstance(wanted.value, bool) or not isinstance(wanted.value, float):
        return False
    return order(value, wanted.value)
