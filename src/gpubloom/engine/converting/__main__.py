"""`python -m gpubloom.engine.converting SOURCE TARGET --to FORM`.

The process that `bloom runs convert-checkpoint` starts.

Prints what was written as JSON. Wrong input ends it with one sentence and status 2.
"""

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path

from gpubloom.engine.converting import FORMS, convert
from gpubloom.errors import exit_with


def main() -> None:
    parser = argparse.ArgumentParser(prog="gpubloom.engine.converting")
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("--to", choices=FORMS, required=True)
    options = parser.parse_args()
    try:
        written = convert(options.source, options.target, options.to)
    except (ValueError, OSError) as problem:
        exit_with(problem)
    sys.stdout.write(json.dumps(asdict(written), default=str) + "\n")


if __name__ == "__main__":
    main()
