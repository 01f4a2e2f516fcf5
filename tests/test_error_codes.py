"""docs/errors.md lists every code that the sources raise, and no other."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent.parent
SOURCES = ROOT / "src/gpubloom"
ROW = re.compile(r"^\| `([a-z0-9_]+)` \| (\S.*) \| (\S.*) \|$", re.MULTILINE)

CODE = re.compile("[a-z][a-z0-9_]{0,63}")

# Their first argument is a code.
FUNCTIONS = {"PydanticCustomError", "OAuthFailed", "fail", "report", "error_line", "_end", "LaunchFailed"}
BASES = {"CodedError", "InputError", "ProviderError", "StorageError", "MirrorError"}
# Names that stand for codes where jobs are concluded.
TABLES = {
    "cli/__init__.py": "_CODES",
    "providers/cloud.py": "FaultKind",
    "providers/start_report.py": "FailureCode",
    "server/jobs/machines.py": "GONE",
    "worker/attempt_outcome.py": "_FAILED",
    "worker/disk.py": "Code",
    "worker/spending.py": "_CODES",
}


@cache
def nodes() -> dict[str, list[ast.AST]]:
    """Of each file, the nodes that any question here is about: to walk through all of them takes long."""
    asked = (ast.ClassDef, ast.Call, ast.Assign, ast.AnnAssign, ast.Raise)
    return {
        str(file.relative_to(SOURCES)): [
            node for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))) if isinstance(node, asked)
        ]
        for file in sorted(SOURCES.rglob("*.py"))
        # Scripts that people start from stand alone.
        if "templates" not in file.parts
    }


def name_of(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def coded_classes() -> set[str]:
    """Classes that are raised with a code as their first argument."""
    parents = {
        node.name: {name_of(base) for base in node.bases}
        for of_file in nodes().values()
        for node in of_file
        if isinstance(node, ast.ClassDef)
    }
    found = set(BASES)
    while more := {name for name, bases in parents.items() if bases & found} - found:
        found |= more
    return found


def codes_in(path: str, of_file: list[ast.AST], coded: set[str]) -> Iterator[str]:
    first_is_code = coded | FUNCTIONS
    for node in of_file:
        match node:
            case ast.ClassDef(name=name, body=body):
                yield from _class_codes(body)
                if name in coded:
                    yield from _codes_for_parent(node)
            case ast.Call(func=function, args=arguments, keywords=keywords):
                if name_of(function) in first_is_code:
                    yield from _literals(*arguments[:1])
                if name_of(function) == "_failed":
                    yield from _literals(*arguments[1:2])
                yield from _literals(*(keyword.value for keyword in keywords if keyword.arg == "code"))
            case ast.Assign(targets=[ast.Attribute(attr="error_code")], value=value):
                yield from _literals(value)
            case ast.Assign(targets=[target], value=value) if name_of(target) == TABLES.get(path):
                yield from _table(value)
            case ast.AnnAssign(target=target, value=ast.expr() as value) if name_of(target) == TABLES.get(
                path
            ):
                yield from _table(value)


def _literals(*nodes: ast.expr) -> Iterator[str]:
    for node in nodes:
        match node:
            case ast.Constant(value=str(text)) if CODE.fullmatch(text):
                yield text
            case ast.IfExp(body=first, orelse=second):
                yield from _literals(first, second)


def _table(node: ast.expr) -> Iterator[str]:
    match node:
        case ast.Dict(values=values):
            yield from _literals(*values)
        case ast.Subscript(slice=ast.Tuple(elts=elements)):
            yield from _literals(*elements)
        case _:
            yield from _literals(node)


def _class_codes(body: list[ast.stmt]) -> Iterator[str]:
    for statement in body:
        match statement:
            case ast.Assign(targets=[ast.Name(id="code")], value=value):
                yield from _literals(value)
            case ast.AnnAssign(target=ast.Name(id="code"), value=ast.expr() as value):
                yield from _literals(value)
            case ast.Assign(
                targets=[ast.Tuple(elts=[_, ast.Name(id="code")])], value=ast.Tuple(elts=[_, value])
            ):
                yield from _literals(value)


def _codes_for_parent(node: ast.ClassDef) -> Iterator[str]:
    for call in ast.walk(node):
        if isinstance(call, ast.Call) and ast.unparse(call.func) == "super().__init__" and len(call.args) > 1:
            yield from _literals(call.args[0])


@cache
def raised() -> frozenset[str]:
    coded = coded_classes()
    return frozenset(code for path, of_file in nodes().items() for code in codes_in(path, of_file, coded))


def listed() -> list[str]:
    return [row[1] for row in ROW.finditer((ROOT / "docs/errors.md").read_text(encoding="utf-8"))]


def test_every_code_that_is_raised_is_listed_with_its_meaning_and_a_remedy() -> None:
    assert sorted(raised() - set(listed())) == []


def test_every_listed_code_is_raised_somewhere() -> None:
    assert sorted(set(listed()) - raised()) == []


def test_a_code_is_listed_once() -> None:
    codes = listed()
    assert sorted(code for code in set(codes) if codes.count(code) > 1) == []


def test_errors_for_people_are_raised_with_a_code() -> None:
    bare = [
        f"{path}:{node.lineno}"
        for path, of_file in nodes().items()
        for node in of_file
        if isinstance(node, ast.Raise)
        and isinstance(node.exc, ast.Call)
        and name_of(node.exc.func) == "ValueError"
    ]
    assert bare == []
