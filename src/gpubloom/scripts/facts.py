"""One pass over a syntax tree: imports, settings, calls and loops, each with its line.

A *setting* is a name with a value that a script is configured by: an assignment, a field of a class, a key of
a dictionary, an argument of its command line. Nothing is judged here.
"""

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Literal

from gpubloom.scripts.source import SourceFile

SettingKind = Literal["assignment", "argument", "field", "key", "local"]

_BLOCKS = (ast.If, ast.Try, ast.For, ast.While, ast.AsyncFor, ast.Match)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_ARGUMENT_CALLS = {"add_argument", "option", "Option", "DEFINE_integer", "DEFINE_float", "DEFINE_string"}


@dataclass(frozen=True)
class Setting:
    """A name and the expression it is set to. `conditional`: only under some condition."""

    name: str
    node: ast.expr
    source: SourceFile
    kind: SettingKind
    conditional: bool = False


@dataclass(frozen=True)
class Call:
    """A call; `name` is dotted and goes through the imports: nn.Linear is torch.nn.Linear."""

    name: str
    node: ast.Call
    source: SourceFile
    in_loop: bool = False
    class_name: str | None = None

    @property
    def tail(self) -> str:
        return self.name.rpartition(".")[2]

    @property
    def line(self) -> int:
        return self.node.lineno


@dataclass
class Loop:
    """A for loop; `calls` are those within it, at any depth."""

    target: str
    over: ast.expr
    source: SourceFile
    line: int
    outer: "Loop | None"
    calls: list[Call] = field(default_factory=list)


@dataclass
class Facts:
    """What one file says."""

    source: SourceFile
    # By the name in the file: what it stands for, and the line.
    imports: dict[str, tuple[str, int]] = field(default_factory=dict)
    # Top-level packages, each with its first line.
    packages: dict[str, int] = field(default_factory=dict)
    local_imports: set[str] = field(default_factory=set)
    settings: list[Setting] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    loops: list[Loop] = field(default_factory=list)
    classes: dict[str, tuple[int, tuple[str, ...]]] = field(default_factory=dict)
    strings: list[tuple[str, int]] = field(default_factory=list)
    environment: list[tuple[str, ast.expr | None, int]] = field(default_factory=list)


@dataclass(frozen=True)
class _Context:
    conditional: bool = False
    function: bool = False
    class_name: str | None = None
    loop: Loop | None = None


def read_facts(source: SourceFile) -> Facts:
    facts = Facts(source)
    _imports(facts)
    # A stack of our own: a tree may be deeper than Python's.
    stack: list[tuple[ast.AST, _Context]] = [(source.tree, _Context())]
    while stack:
        node, context = stack.pop()
        inner = _take(facts, node, context)
        children = list(ast.iter_child_nodes(node))
        stack.extend((child, inner) for child in reversed(children))
    return facts


def dotted(node: ast.AST) -> str | None:
    """a.b.c of names and attributes; something else at its root, such as a call, is left out: `.c`."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if isinstance(node, ast.Name):
        parts.append(node.id)
    elif not parts:
        return None
    else:
        parts.append("")
    return ".".join(reversed(parts))


def resolved(name: str, imports: dict[str, tuple[str, int]]) -> str:
    head, dot, rest = name.partition(".")
    return imports[head][0] + dot + rest if head in imports else name


def _imports(facts: Facts) -> None:
    for node in ast.walk(facts.source.tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                top = alias.name.partition(".")[0]
                facts.packages.setdefault(top, node.lineno)
                facts.imports[alias.asname or top] = (alias.name if alias.asname else top, node.lineno)
        elif isinstance(node, ast.ImportFrom):
            module = node.module or ""
            if node.level:
                facts.local_imports.add(module.partition(".")[0])
            elif module:
                facts.packages.setdefault(module.partition(".")[0], node.lineno)
            for alias in node.names:
                facts.imports[alias.asname or alias.name] = (f"{module}.{alias.name}", node.lineno)


def _take(facts: Facts, node: ast.AST, context: _Context) -> _Context:
    match node:
        case ast.Assign(targets=targets, value=value):
            for target in targets:
                _assigned(facts, target, value, context)
        case ast.AnnAssign(target=target, value=value) if value is not None:
            _assigned(facts, target, value, context)
        case ast.Dict():
            _keys(facts, node, context)
        case ast.Call():
            _called(facts, node, context)
        case ast.Constant(value=str(text)):
            facts.strings.append((text, node.lineno))
        case ast.ClassDef(name=name, bases=bases):
            known = tuple(resolved(found, facts.imports) for base in bases if (found := dotted(base)))
            facts.classes[name] = (node.lineno, known)
            return replace(context, class_name=name, conditional=False)
        case ast.For(target=target, iter=over) | ast.AsyncFor(target=target, iter=over):
            loop = Loop(_target_name(target), over, facts.source, node.lineno, context.loop)
            facts.loops.append(loop)
            return replace(context, loop=loop, conditional=True)
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            _defaults(facts, node)
            return replace(context, function=True, conditional=False)
    if isinstance(node, _FUNCTIONS):
        return replace(context, function=True)
    if isinstance(node, _BLOCKS) and not _is_main_guard(node):
        return replace(context, conditional=True)
    return context


def _assigned(facts: Facts, target: ast.expr, value: ast.expr, context: _Context) -> None:
    for name, given in _pairs(target, value):
        kind: SettingKind = "assignment"
        if context.function or "." in name:
            kind = "local"
        elif context.class_name is not None:
            kind = "field"
            given = _field_default(given)
        setting = Setting(name.rpartition(".")[2], given, facts.source, kind, context.conditional)
        facts.settings.append(setting)
    if isinstance(target, ast.Subscript) and dotted(target.value) in {"os.environ", "environ"}:
        key = target.slice
        if isinstance(key, ast.Constant) and isinstance(key.value, str):
            facts.environment.append((key.value, value, target.lineno))


def _pairs(target: ast.expr, value: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    if isinstance(target, ast.Name):
        yield target.id, value
    elif isinstance(target, ast.Attribute):
        yield dotted(target) or target.attr, value
    elif isinstance(target, ast.Subscript):
        key = target.slice
        if isinstance(key, ast.Constant) and isinstance(key.value, str):
            yield key.value, value
    elif isinstance(target, ast.Tuple | ast.List) and isinstance(value, ast.Tuple | ast.List):
        # Of different lengths when one of them is starred: then nobody knows which is which.
        pairs = zip(target.elts, value.elts, strict=False) if len(target.elts) == len(value.elts) else ()
        yield from ((one.id, given) for one, given in pairs if isinstance(one, ast.Name))


def _field_default(value: ast.expr) -> ast.expr:
    """The default of `field(default=…)`."""
    if isinstance(value, ast.Call) and (dotted(value.func) or "").rpartition(".")[2] in {"field", "Field"}:
        for keyword in value.keywords:
            if keyword.arg == "default":
                return keyword.value
        if value.args:
            return value.args[0]
    return value


def _keys(facts: Facts, node: ast.Dict, context: _Context) -> None:
    for key, value in zip(node.keys, node.values, strict=True):
        if isinstance(key, ast.Constant) and isinstance(key.value, str):
            facts.settings.append(Setting(key.value, value, facts.source, "key", context.conditional))


def _defaults(facts: Facts, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
    arguments = node.args
    named = [*arguments.posonlyargs, *arguments.args]
    pairs = [*zip(reversed(named), reversed(arguments.defaults), strict=False)]
    pairs += [(a, d) for a, d in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True) if d]
    for argument, default in pairs:
        facts.settings.append(Setting(argument.arg, default, facts.source, "local", conditional=True))


def _called(facts: Facts, node: ast.Call, context: _Context) -> None:
    name = dotted(node.func)
    if name is None:
        return
    call = Call(
        resolved(name, facts.imports), node, facts.source, context.loop is not None, context.class_name
    )
    facts.calls.append(call)
    loop = context.loop
    while loop is not None:
        loop.calls.append(call)
        loop = loop.outer
    if call.tail in _ARGUMENT_CALLS:
        _argument(facts, node)
    elif call.tail == "dict":
        for keyword in node.keywords:
            if keyword.arg:
                facts.settings.append(Setting(keyword.arg, keyword.value, facts.source, "key"))
    if call.name in {"os.environ.get", "os.getenv", "os.environ.setdefault"} and node.args:
        key = node.args[0]
        if isinstance(key, ast.Constant) and isinstance(key.value, str):
            given = node.args[1] if len(node.args) > 1 and call.tail == "setdefault" else None
            facts.environment.append((key.value, given, node.lineno))


def _argument(facts: Facts, node: ast.Call) -> None:
    """`add_argument("--batch-size", default=32)`, click's and absl's likes."""
    flags = [a.value for a in node.args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
    long = next((flag for flag in flags if flag.startswith("--")), flags[0] if flags else None)
    if long is None:
        return
    default = next((keyword.value for keyword in node.keywords if keyword.arg == "default"), None)
    if default is None and (dotted(node.func) or "").rpartition(".")[2].startswith("DEFINE_"):
        default = node.args[1] if len(node.args) > 1 else None
    if default is not None:
        name = long.lstrip("-").partition("/")[0].replace("-", "_")
        facts.settings.append(Setting(name, default, facts.source, "argument"))


def _target_name(target: ast.expr) -> str:
    if isinstance(target, ast.Tuple) and target.elts:
        return _target_name(target.elts[0])
    return dotted(target) or ""


def _is_main_guard(node: ast.AST) -> bool:
    match node:
        case ast.If(test=ast.Compare(left=ast.Name(id="__name__"))):
            return True
    return False
