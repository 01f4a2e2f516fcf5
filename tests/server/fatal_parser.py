"""The parser of documents, except that one document kills it and another never ends."""

import os
import time
from typing import Any

from gpubloom.datasets.documents.archive import Member
from gpubloom.server.datasets import parse_process

_parsed = Member.parsed


def _dangerous(self: Member) -> Any:
    if self.name == "fatal.txt":
        os._exit(9)
    if self.name == "slow.txt":
        time.sleep(600)
    return _parsed(self)


if __name__ == "__main__":
    Member.parsed = _dangerous  # type: ignore[method-assign]
    parse_process.main()
