"""Whether a script reports through TrainCard, read from its imports without running it.

The imports are followed into modules and packages that lie beside the script. An earlier attempt may have
left anything in their place: no link is followed, and nothing waits for a pipe.
"""

import ast
import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from gpubloom.agent.spec import JobSpec
from gpubloom.traincard.safe_paths import open_plain

# With these, TrainCard is in the script; its Reporter may begin late.
OURS = frozenset({"gpubloom", "metaflow_traincard"})
_LARGEST_SCRIPT = 1 << 20
_MOST_MODULES = 100


def knows_traincard(spec: JobSpec) -> bool:
    """Whether the script, or a module of its folder that it imports, imports TrainCard."""
    named = [word for word in spec.command if word.endswith(".py")]
    if not named:
        return any(word.partition(".")[0] in OURS for word in spec.command)
    # An absolute one stays absolute.
    entry = Path(spec.run_dir, spec.folder, named[0])
    if not entry.is_relative_to(spec.run_dir):
        return False
    script = PurePosixPath(entry.relative_to(spec.run_dir))
    pending, seen = [script], {script}
    for _ in range(_MOST_MODULES):
        if not pending:
            break
        path = pending.pop(0)
        for module in _imports(spec, path):
            if module[0] in OURS:
                return True
            # Python looks in the folder of the script first.
            for found in _files(script.parent, path.parent, module):
                if found not in seen:
                    seen.add(found)
                    pending.append(found)
    return False


def _files(top: PurePosixPath, package: PurePosixPath, module: tuple[str, ...]) -> Iterator[PurePosixPath]:
    """Where a module may lie. A relative one begins with an empty name for each step up."""
    steps = sum(1 for part in module if not part)
    folder = top if steps == 0 else package.joinpath(*[".."] * (steps - 1))
    if ".." in folder.parts:
        folder = PurePosixPath(os.path.normpath(folder))
    for part in module[steps:]:
        folder = folder / part
        yield folder.with_suffix(".py")
        yield folder / "__init__.py"


def _imports(spec: JobSpec, path: PurePosixPath) -> Iterator[tuple[str, ...]]:
    """Names of modules; nothing for what is no Python, which then cannot report either."""
    try:
        file = open_plain(spec.run_dir, str(path))
        if file is None:
            return
        with file:
            text = file.read(_LARGEST_SCRIPT + 1)
        if len(text) > _LARGEST_SCRIPT:
            return
        tree = ast.parse(text)
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (tuple(alias.name.split(".")) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = ("",) * node.level + tuple((node.module or "").split(".") if node.module else ())
            # What is imported from a package may be a module of it.
            yield from ((*base, alias.name) for alias in node.names)
            yield base or ("",)
