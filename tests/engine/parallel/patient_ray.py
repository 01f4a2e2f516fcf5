"""The command `ray`, but a busy machine gets longer than Ray's 30 seconds until a node is there."""

import sys
import time
from typing import Any

from ray._private import services
from ray.scripts.scripts import main

_SECONDS = 150.0
_get_node = services.get_node


def _get_node_at_last(*arguments: Any) -> Any:
    deadline = time.monotonic() + _SECONDS
    while True:
        try:
            return _get_node(*arguments)
        except RuntimeError:
            if time.monotonic() > deadline:
                raise


services.get_node = _get_node_at_last
sys.exit(main())
