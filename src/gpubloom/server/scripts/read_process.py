"""`python -m` this: reads one person's scripts and notebooks, without running them.

The first line of the input is {"sandbox": …, "cpu_seconds": …, "memory_bytes": …}. The process then gives up
every file, socket and process, for it needs none. Each further line is a request; each answer is one line:
{"result": …} or {"refused": "a sentence", "code": …}. A process that a script takes over sees scripts of the
same person only.
"""

import json
import sys
from collections.abc import Callable
from typing import Any

from gpubloom.sandbox.landlock import Limits, confine_reader
from gpubloom.scripts import ScriptProblem, detect, from_notebook, to_notebook

MOST_CHARACTERS = 1_000_000


def _requirements(request: dict[str, Any]) -> Any:
    found = detect(request["script"], files=request["files"], arguments=request["arguments"])
    return found.model_dump(mode="json")


def _to_notebook(request: dict[str, Any]) -> Any:
    return _bounded("notebook", to_notebook(request["script"]))


def _from_notebook(request: dict[str, Any]) -> Any:
    return _bounded("script", from_notebook(request["notebook"]))


def _colab_notebook(request: dict[str, Any]) -> Any:
    # Imported late: few ask for it.
    from gpubloom.providers.colab.notebook import colab_notebook

    made = colab_notebook(
        request["files"],
        request["entry"],
        request["arguments"],
        request["packages"],
        name=request["name"],
        gpu=request["gpu"],
    )
    return _bounded("notebook", json.dumps(made, indent=1, ensure_ascii=False) + "\n")


def _bounded(kind: str, text: str) -> str:
    if len(text) > MOST_CHARACTERS:
        raise ScriptProblem(
            "script_too_large",
            f"The {kind} would have {len(text):,} characters, above the limit of {MOST_CHARACTERS:,}. "
            "Move data into a separate file.",
        )
    return text


ACTIONS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "requirements": _requirements,
    "to_notebook": _to_notebook,
    "from_notebook": _from_notebook,
    "colab_notebook": _colab_notebook,
}


def _answer(request: dict[str, Any]) -> dict[str, Any]:
    try:
        return {"result": ACTIONS[request["action"]](request)}
    except ScriptProblem as problem:
        return {"refused": str(problem)[:2_000], "code": problem.code}
    except MemoryError:
        return {
            "refused": "Reading the script takes too much memory. Move data from it into a separate file.",
            "code": "script_too_complex",
        }


def main() -> None:
    """Answers until the input ends."""
    setup = json.loads(sys.stdin.readline())
    limits = Limits(setup["cpu_seconds"], memory_bytes=setup["memory_bytes"])
    confine_reader([], limits=limits, policy=setup["sandbox"])
    for line in sys.stdin:
        sys.stdout.write(json.dumps(_answer(json.loads(line))) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
