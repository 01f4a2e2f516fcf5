"""The value of an expression, where it can be told without running anything."""

import ast
import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gpubloom.scripts.facts import Facts, Setting, dotted, resolved
from gpubloom.scripts.requirements import Evidence
from gpubloom.scripts.source import SourceFile

_DEEPEST = 30
_LARGEST = 1e24
_MOST_ITEMS = 64
_OPERATORS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
}
_NUMBER_CALLS: dict[str, Callable[..., Any]] = {
    "int": int,
    "float": float,
    "round": round,
    "max": max,
    "min": min,
}
# Their first argument is what they are about.
_TRANSPARENT = {"torch.device", "pathlib.Path", "Path", "str", "os.path.expanduser", "os.fspath"}
# A later one of the same rank replaces an earlier one.
_RANKS = {"argument": 4, "assignment": 3, "key": 2, "field": 2, "local": 1}


@dataclass(frozen=True)
class Symbol:
    """A name that belongs to a library, such as torch.bfloat16."""

    name: str

    @property
    def tail(self) -> str:
        return self.name.rpartition(".")[2]


@dataclass(frozen=True)
class Known:
    """A value and the lines it comes from. `sure`: no condition was guessed on the way."""

    value: Any
    evidence: tuple[Evidence, ...]
    sure: bool = True


class Values:
    """Names to values over all files of a script. `overrides` win: they come from the command line."""

    def __init__(self, files: list[Facts], overrides: dict[str, Known]) -> None:
        self._imports = {id(facts.source): facts.imports for facts in files}
        self._overrides = overrides
        self._settings: dict[str, Setting] = {}
        ranks: dict[str, int] = {}
        for position, facts in enumerate(files):
            for setting in facts.settings:
                if isinstance(setting.node, ast.Constant) and setting.node.value is None:
                    # A placeholder for a value that comes later.
                    continue
                # The script itself counts more than the modules beside it.
                rank = _rank(setting) + (0 if position else 10)
                if rank >= ranks.get(setting.name, -10):
                    ranks[setting.name] = rank
                    self._settings[setting.name] = setting
        self._known: dict[int, Known | None] = {}

    def setting(self, *names: str) -> Known | None:
        """The value of the first of these settings that has one, written small or as a constant."""
        for name in names:
            for spelled in (name, name.upper()):
                if (found := self._named(spelled, 0)) is not None and found.value is not None:
                    return found
        return None

    def names(self) -> set[str]:
        return {*self._settings, *self._overrides}

    def of(self, node: ast.expr, source: SourceFile, depth: int = 0) -> Known | None:
        """None: it cannot be told."""
        if depth > _DEEPEST:
            return None
        if id(node) not in self._known:
            # Entered before it is known: a name that is defined by itself has no value.
            self._known[id(node)] = None
            self._known[id(node)] = self._evaluate(node, source, depth + 1)
        return self._known[id(node)]

    def _named(self, name: str, depth: int) -> Known | None:
        if name in self._overrides:
            return self._overrides[name]
        setting = self._settings.get(name)
        if setting is None:
            return None
        found = self.of(setting.node, setting.source, depth)
        if found is None:
            return None
        line = setting.source.evidence(setting.node.lineno)
        evidence = found.evidence if line in found.evidence else (line, *found.evidence)
        return Known(found.value, evidence[:4], found.sure and not setting.conditional)

    def _evaluate(self, node: ast.expr, source: SourceFile, depth: int) -> Known | None:
        here = (source.evidence(node.lineno),)
        match node:
            case ast.Constant(value=value):
                return Known(value, here)
            case ast.Name(id=name):
                return self._named(name, depth) or self._symbol(node, source)
            case ast.Attribute(attr=name):
                return self._symbol(node, source) or self._named(name, depth)
            case ast.Subscript(slice=ast.Constant(value=str(name))):
                return self._named(name, depth)
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return _arithmetic(ast.Sub, [Known(0, ()), self.of(operand, source, depth)])
            case ast.BinOp(left=left, op=op, right=right):
                parts = [self.of(left, source, depth), self.of(right, source, depth)]
                return _arithmetic(type(op), parts)
            case ast.IfExp(body=body, orelse=other):
                # What a script does when everything is there: the GPU, the file, the flag.
                found = self.of(body, source, depth) or self.of(other, source, depth)
                return None if found is None else Known(found.value, found.evidence, sure=False)
            case ast.BoolOp(values=values):
                parts = [self.of(each, source, depth) for each in values[:_MOST_ITEMS]]
                return next((part for part in parts if part is not None and part.value), None)
            case ast.Tuple(elts=items) | ast.List(elts=items) if len(items) <= _MOST_ITEMS:
                parts = [self.of(item, source, depth) for item in items]
                return Known([part and part.value for part in parts], here)
            case ast.Call():
                return self._call(node, source, depth)
        return None

    def _symbol(self, node: ast.expr, source: SourceFile) -> Known | None:
        name = dotted(node)
        imports = self._imports[id(source)]
        if name is None or name.partition(".")[0] not in imports:
            return None
        return Known(Symbol(resolved(name, imports)), (source.evidence(node.lineno),))

    def _call(self, node: ast.Call, source: SourceFile, depth: int) -> Known | None:
        name = resolved(dotted(node.func) or "", self._imports[id(source)])
        if name in {"os.environ.get", "os.getenv"} and len(node.args) == 2:
            found = self.of(node.args[1], source, depth)
            return None if found is None else Known(found.value, found.evidence, sure=False)
        if name in _TRANSPARENT and node.args:
            return self.of(node.args[0], source, depth)
        if name in _NUMBER_CALLS and 0 < len(node.args) <= _MOST_ITEMS and not node.keywords:
            parts = [self.of(argument, source, depth) for argument in node.args]
            known = [part for part in parts if part is not None]
            return _computed(_NUMBER_CALLS[name], known) if len(known) == len(parts) else None
        return None


def _rank(setting: Setting) -> int:
    return _RANKS[setting.kind] - (5 if setting.conditional else 0)


def _arithmetic(kind: type[ast.operator], parts: list[Known | None]) -> Known | None:
    if kind not in _OPERATORS or any(part is None for part in parts):
        return None
    known = [part for part in parts if part is not None]
    if not all(_is_number(part.value) for part in known):
        return None
    # A power is a few characters and may be gigabytes.
    if kind is ast.Pow and (abs(known[0].value) > 1e6 or abs(known[1].value) > 64):
        return None
    return _computed(_OPERATORS[kind], known)


def _computed(compute: Callable[..., Any], parts: list[Known]) -> Known | None:
    try:
        value = compute(*(part.value for part in parts))
    except (ArithmeticError, TypeError, ValueError):
        return None
    if not _is_number(value) or not abs(value) < _LARGEST:
        return None
    lines = {line: None for part in parts for line in part.evidence}
    return Known(value, tuple(lines)[:4], all(part.sure for part in parts))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
