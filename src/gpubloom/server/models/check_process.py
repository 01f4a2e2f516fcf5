"""`python -m` this with {"folder": …} on the input: says what is wrong with a model's folder, in JSON.

A tokenizer and a chat template are a stranger's, so they are looked at in a process of its own.
"""

import json
import sys
from pathlib import Path

from gpubloom.hub.checking import check_model
from gpubloom.server.storage.children import bound_this_process


def main() -> None:
    request = json.load(sys.stdin)
    bound_this_process(cpu_seconds=request["cpu_seconds"])
    report = json.dumps(check_model(Path(request["folder"])).to_json())
    # Paths of this machine are nobody's business.
    sys.stdout.write(report.replace(json.dumps(request["folder"])[1:-1], "the folder") + "\n")


if __name__ == "__main__":
    main()
