"""Checks a model's folder in a child process: a tokenizer and a chat template are a stranger's.

`python -m` this with {"folder": …} on the input writes the report as JSON; `check_folder` starts it.
"""

import json
import sys
from pathlib import Path
from typing import Any

from gpubloom.sandbox.landlock import Limits, Policy, confine_reader, with_links
from gpubloom.server.storage import children

_MODULE = "gpubloom.server.models.checks"
# It reads small files and headers; what takes longer is a template that does not want to end.
_SECONDS = 30
_MEMORY_BYTES = 2 << 30
_LONGEST_TEXT = 2_000


class CheckFailed(Exception):
    """The check did not finish; says why."""


async def check_folder(folder: Path, policy: Policy) -> dict[str, Any]:
    """The report of a model's folder. `policy` is the operator's BLOOM_SANDBOX.

    A file may have taken the child over: of its answer counts what a report can be.
    """
    # The child imports this module, too.
    from pydantic import ValidationError

    from gpubloom.server.models.schemas import CheckOut
    from gpubloom.server.schema import storable
    from gpubloom.traincard.number_encoding import plain

    request = {"folder": str(folder), "cpu_seconds": _SECONDS, "sandbox": policy}
    try:
        said = await children.answer(_MODULE, request, seconds=_SECONDS)
        report = CheckOut.model_validate(plain(said, text=lambda text: storable(text)[:_LONGEST_TEXT]))
    except children.ChildFailed as error:
        raise CheckFailed(f"The check of the model did not finish. {error}") from error
    except ValidationError as error:
        raise CheckFailed("The check of the model sent an unreadable answer.") from error
    return report.model_dump(mode="json")


def main() -> None:
    """One request, one report."""
    from gpubloom.datasets.template_sandbox import end_process_after
    from gpubloom.hub.checking import check_model

    request = json.load(sys.stdin)
    end_process_after(children.TEMPLATE_CPU_SECONDS)
    folder = Path(request["folder"])
    limits = Limits(request["cpu_seconds"], memory_bytes=_MEMORY_BYTES)
    confine_reader(with_links(folder), limits=limits, policy=request["sandbox"])
    report = json.dumps(check_model(folder).to_json())
    # Paths of this machine are nobody's business.
    sys.stdout.write(report.replace(json.dumps(request["folder"])[1:-1], "the folder") + "\n")


if __name__ == "__main__":
    main()
