"""The Jinja environment in which chat templates run: bounded in time and in the length of texts.

A template is a program from somebody else. Jinja's sandbox keeps it from what Python can do; it does not keep
it from looping, or from asking for a text of a gigabyte. Here every turn of a loop, every call and every
operator looks at the CPU time, and whatever joins or repeats texts looks at their length first.

A single operation of a library can still take long. A process that does nothing else than read strangers'
files calls `end_process_after`: the kernel then ends the process when Python cannot stop the template.
"""

import json
import re
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime
from functools import wraps
from typing import Any, NoReturn

import jinja2
import jinja2.ext
from jinja2 import nodes
from jinja2.sandbox import ImmutableSandboxedEnvironment, SandboxedFormatter
from jinja2.visitor import NodeTransformer

from gpubloom.datasets.problems import TemplateLimit
from gpubloom.errors import InputError

# Of CPU time, so that a busy machine does not refuse honest templates.
MOST_SECONDS = 1.0
# In characters, and in items of a list.
LONGEST_TEXT = 16 << 20
_LONGEST_SOURCE = 1 << 20
# Operations between two looks at the time; each is bounded by itself.
_TICKS = 16
_LARGEST_POWER = 1_000
_MOST_BITS = 4_096
_WIDE = re.compile(r"\*|\d{5,}")
_DICT_ATTRIBUTES = frozenset(dir(dict))
_TICK = "bloom_tick"
_FILTERS_WITH_WIDTHS = ("center", "indent", "wordwrap", "batch", "slice", "truncate", "tojson")


@dataclass(slots=True)
class _Budget:
    """What is left to one rendering: until when (CPU time of the thread), and how many characters.

    The time counts from the first look at the clock, which most renderings never come to.
    """

    deadline: float | None = None
    characters: int = 8 * LONGEST_TEXT
    ticks: int = 0


_budget: ContextVar[_Budget] = ContextVar("budget")
_hard_seconds: list[float] = []


def end_process_after(cpu_seconds: float) -> None:
    """From now on the kernel ends this process (SIGPROF) when a template takes so long."""
    _hard_seconds[:] = [cpu_seconds]


@contextmanager
def limited() -> Iterator[None]:
    """Within it, what templates of this thread do is counted together."""
    before = _budget.set(_Budget())
    if _hard_seconds:
        signal.setitimer(signal.ITIMER_PROF, _hard_seconds[0])
    try:
        yield
    except MemoryError:
        raise _too_large("needs more memory than the server allows") from None
    finally:
        if _hard_seconds:
            signal.setitimer(signal.ITIMER_PROF, 0)
        _budget.reset(before)


def compile_template(source: str, open_mark: str, close_mark: str) -> Callable[..., str]:
    """A function that renders; what stands in {% generation %} comes out between the marks."""
    if len(source) > _LONGEST_SOURCE:
        raise _too_large(f"has more than {_LONGEST_SOURCE:,} characters")
    environment = TemplateEnvironment(open_mark, close_mark)
    with limited():
        try:
            template = environment.from_string(source)
        except jinja2.TemplateSyntaxError as problem:
            raise InputError(
                "template_invalid",
                f"The chat template cannot be read: {problem.message} (line {problem.lineno}).",
            ) from None
        except (RecursionError, SyntaxError):
            raise InputError(
                "template_invalid", "The chat template cannot be read: it is nested too deeply."
            ) from None

    shared = dict(template.globals)

    def render(**values: Any) -> str:
        with limited():
            # As template.generate does it, without looking through the layers of its globals for every row.
            context = jinja2.runtime.new_context(
                environment, template.name, template.blocks, {**shared, **values}, shared=True, globals=shared
            )
            return _joined(template.root_render_func(context))

    return render


class _Generation(jinja2.ext.Extension):
    """{% generation %} … {% endgeneration %}: what the model writes."""

    tags = {"generation"}  # noqa: RUF012 - jinja2 declares it as an instance attribute

    def parse(self, parser: Any) -> Any:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        call = nodes.CallBlock(self.call_method("_marked"), [], [], body)
        return call.set_lineno(line)

    def _marked(self, caller: Callable[[], str]) -> str:
        marks: Any = self.environment
        return f"{marks.open_mark}{caller()}{marks.close_mark}"


class _Checks(NodeTransformer):
    """Lets every turn of a loop look at the time, and `~` at the length of what it joins."""

    def visit_For(self, node: nodes.For) -> nodes.For:  # noqa: N802 - jinja2 names it
        self.generic_visit(node)
        # A filter: a call would be looked at as if the template had made it.
        tick = nodes.Filter(nodes.Const(""), _TICK, [], [], None, None)
        node.body.insert(0, nodes.ExprStmt(tick).set_lineno(node.lineno))
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:  # noqa: N802 - jinja2 names it
        self.generic_visit(node)
        joined = nodes.EnvironmentAttribute("joined")
        return nodes.Call(joined, node.nodes, [], None, None).set_lineno(node.lineno)


class _Formatter(SandboxedFormatter):
    """str.format without wide fields."""

    def format_field(self, value: Any, format_spec: str) -> Any:
        _refuse_wide(format_spec)
        return super().format_field(value, format_spec)


class TemplateEnvironment(ImmutableSandboxedEnvironment):
    """Jinja's sandbox with limits."""

    intercepted_binops = frozenset({"+", "-", "*", "/", "//", "%", "**"})

    def __init__(self, open_mark: str, close_mark: str) -> None:
        super().__init__(
            trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, jinja2.ext.loopcontrols]
        )
        self.open_mark, self.close_mark = open_mark, close_mark
        self.filters["tojson"] = _to_json
        self.filters[_TICK] = _ticked
        for name in _FILTERS_WITH_WIDTHS:
            self.filters[name] = _with_narrow(self.filters[name])
        self.filters["format"] = _format
        self.globals["raise_exception"] = _refuse
        self.globals["strftime_now"] = _now
        del self.globals["lipsum"]

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        tree = super()._parse(source, name, filename)
        checked: nodes.Template = _Checks().visit(tree)
        return checked

    @staticmethod
    def concat(pieces: Iterable[str]) -> str:
        """What Jinja joins the parts of a block or macro with."""
        return _joined(pieces)

    def tick(self) -> str:
        """Looks at the time, which costs more than most of what a template does between two looks."""
        _tick(_budget.get())
        return ""

    def joined(self, *values: Any) -> str:
        """The operator `~`."""
        text = _joined(map(str, values))
        _counted(text)
        return text

    def getattr(self, obj: Any, attribute: str) -> Any:
        """`message.role` of a plain object, which the sandbox finds only after an error."""
        if type(obj) is dict and attribute not in _DICT_ATTRIBUTES and attribute in obj:
            return obj[attribute]
        return super().getattr(obj, attribute)

    def call(__self, __context: Any, __obj: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N805 - as in jinja2
        __self.tick()
        if isinstance(getattr(__obj, "__self__", None), str):
            _refuse_long(args)
        return _counted(super().call(__context, __obj, *args, **kwargs))

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        """What a template gets for `text.format`."""
        if super().wrap_str_format(value) is None:
            return None
        text, is_map = value.__self__, value.__name__ == "format_map"

        def format_(*args: Any, **kwargs: Any) -> str:
            if is_map:
                args, kwargs = (), dict(*args)
            return _Formatter(self).vformat(text, args, kwargs)

        return format_

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        budget = _budget.get()
        _tick(budget)
        if operator == "+" and type(left) is str and type(right) is str:
            # Most of what templates do.
            length = len(left) + len(right)
            if length > LONGEST_TEXT:
                _refuse_longer(length)
            budget.characters -= length
            if budget.characters < 0:
                raise _too_large("makes too many texts")
            return left + right
        if operator == "%" and isinstance(left, str):
            _refuse_wide(left)
        elif operator == "+" and isinstance(left, str | list | tuple) and isinstance(right, type(left)):
            _refuse_longer(len(left) + len(right))
        elif operator == "*":
            for some, count in ((left, right), (right, left)):
                if isinstance(count, int) and isinstance(some, str | list | tuple):
                    _refuse_longer(len(some) * count)
        elif operator == "**" and isinstance(right, int | float) and abs(right) > _LARGEST_POWER:
            raise _too_large("computes a power that is too large")
        if isinstance(left, int) and isinstance(right, int):
            bits = left.bit_length() * (abs(right) if operator == "**" else 1) + right.bit_length()
            if bits > _MOST_BITS:
                raise _too_large("computes a number that is too large")
        return _counted(super().call_binop(context, operator, left, right))


def _tick(budget: _Budget) -> None:
    budget.ticks += 1
    if budget.ticks % _TICKS:
        return
    now = time.thread_time()
    if budget.deadline is None:
        budget.deadline = now + MOST_SECONDS
    elif now > budget.deadline:
        raise TemplateLimit(
            "template_took_too_long",
            f"The chat template runs longer than {MOST_SECONDS:g} second: correct its loops.",
        )


@jinja2.pass_context
def _ticked(context: Any, value: str) -> str:
    """With the context, so that Jinja does not compute it once for all."""
    _tick(_budget.get())
    return value


def _counted(value: Any) -> Any:
    """Counts a new text: each may be short enough, and all together too many."""
    if isinstance(value, str | list | tuple):
        budget = _budget.get()
        budget.characters -= len(value)
        if budget.characters < 0:
            raise _too_large("makes too many texts")
    return value


def _joined(pieces: Iterable[str]) -> str:
    kept, length = [], 0
    for piece in pieces:
        length += len(piece)
        if length > LONGEST_TEXT:
            _refuse_longer(length)
        kept.append(piece)
    return "".join(kept)


def _refuse_longer(length: int) -> None:
    if length > LONGEST_TEXT:
        raise _too_large(f"makes a text of more than {LONGEST_TEXT:,} characters")


def _refuse_long(numbers: Iterable[Any]) -> None:
    for number in numbers:
        if isinstance(number, int):
            _refuse_longer(number)


def _refuse_wide(specification: str) -> None:
    if _WIDE.search(specification):
        raise _too_large("formats a field that is too wide")


def _too_large(what: str) -> TemplateLimit:
    return TemplateLimit("template_too_large", f"The chat template {what}.")


def _with_narrow(filter_: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(filter_)
    def checked(*args: Any, **kwargs: Any) -> Any:
        _refuse_long((*args, *kwargs.values()))
        return filter_(*args, **kwargs)

    return checked


def _format(value: str, *args: Any, **kwargs: Any) -> str:
    _refuse_wide(str(value))
    return str(value) % (kwargs or args)


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def _refuse(message: str) -> NoReturn:
    raise jinja2.TemplateError(str(message))


def _now(pattern: str) -> str:
    # The local day, without a zone, is what templates were written against.
    return datetime.now().strftime(pattern)  # noqa: DTZ005
