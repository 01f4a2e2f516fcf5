"""A parser of documents that a document has taken over: it answers with whatever could hurt the asker."""

import json
import os
import sys

if __name__ == "__main__":
    lies = json.loads(os.environ["HF_HUB_TEST_LIES"])
    for number, line in enumerate(sys.stdin):
        # The first line is the setup.
        if number:
            kind = next(iter(json.loads(line)))
            print(json.dumps(lies[kind]), flush=True)
