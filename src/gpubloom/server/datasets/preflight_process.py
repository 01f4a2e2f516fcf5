"""`python -m` this with a request on the input: counts what a run would train on.

Renders strangers' files with strangers' chat templates, in a process that is confined to these files, with
bounded memory and time. The answer is one line of JSON: {"preflight": …} or {"refused": "a sentence"}.
"""

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from gpubloom.datasets import ExampleFile, ModelFiles, Preflight, ReadingOptions, RopeScaling, preflight
from gpubloom.datasets.problems import TemplateLimit
from gpubloom.errors import code_of
from gpubloom.sandbox.landlock import Limits, confine_reader, with_links
from gpubloom.server.datasets.read_process import send_line
from gpubloom.server.storage.children import TEMPLATE_CPU_SECONDS

_MEMORY_BYTES = 4 << 30
_LONGEST_SENTENCE = 2_000
_MOST_UNUSED = 1_000


def _file(said: dict[str, Any]) -> ExampleFile:
    return ExampleFile(
        Path(said["path"]), said["format"], said["columns"], said["encoding"], said["weight"], said["name"]
    )


def named_files(request: dict[str, Any]) -> list[dict[str, Any]]:
    """Every file of a request, the first to train on first."""
    files = request["files"]
    return [*files["train"], *([files["eval"]] if files["eval"] else [])]


def _confine(request: dict[str, Any]) -> None:
    tokenizer = Path(request["tokenizer"])
    folders = [Path(file["path"]).parent for file in named_files(request)]
    confine_reader(
        [*folders, *with_links(tokenizer.parent)],
        limits=Limits(request["cpu_seconds"], memory_bytes=_MEMORY_BYTES),
        policy=request["sandbox"],
    )


def main() -> None:
    """One request, one answer."""
    request = json.load(sys.stdin)
    _confine(request)
    try:
        from gpubloom.datasets.template_sandbox import end_process_after

        end_process_after(TEMPLATE_CPU_SECONDS)
        files = request["files"]
        found = preflight(
            [_file(file) for file in files["train"]],
            _file(files["eval"]) if files["eval"] else None,
            ReadingOptions(**request["options"]),
            ModelFiles.load(Path(request["tokenizer"]), request["template"]),
            packing=request["packing"],
            rope=RopeScaling(**request["rope"]) if request.get("rope") else None,
        )
    except ValueError as problem:
        code = problem.code if isinstance(problem, TemplateLimit) else code_of(problem)
        send_line(refused=_named(str(problem), request)[:_LONGEST_SENTENCE], code=code)
    except MemoryError:
        send_line(refused="The server does not have enough memory for this dataset.", code="cannot_be_read")
    else:
        send_line(preflight=_shown(found, request))


def _shown(found: Preflight, request: dict[str, Any]) -> dict[str, Any]:
    fields = asdict(found)
    fields["findings"] = [finding.as_dict() for finding in found.findings]
    for finding in fields["findings"]:
        finding["sentence"] = _named(finding["sentence"], request)[:_LONGEST_SENTENCE]
    for file in (fields["train_file"], *fields["mixed_files"], fields["eval_file"]):
        if file is not None:
            file["unused_columns"] = [name[:500] for name in file["unused_columns"][:_MOST_UNUSED]]
            for problem in file["problems"]:
                problem["reason"] = problem["reason"][:_LONGEST_SENTENCE]
    return fields


def _named(sentence: str, request: dict[str, Any]) -> str:
    """People know files by other names, and paths of this machine are nobody's business."""
    files = named_files(request)
    for file in files:
        sentence = sentence.replace(file["path"], file["name"])
    if len(files) == 1:
        sentence = sentence.replace(Path(files[0]["path"]).name, files[0]["name"])
    return sentence.replace(str(Path(request["tokenizer"]).parent), "the model")


if __name__ == "__main__":
    main()
