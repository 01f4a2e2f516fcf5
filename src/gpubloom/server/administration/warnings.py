"""What an operator should change about how this server runs. Shown to admins, and logged by workers."""

import os

from gpubloom.providers.local.sandbox import why_no_sandbox
from gpubloom.sandbox.landlock import Policy

_ROOT = (
    "The server runs as root. Jobs run as users of their own, but the server itself should not be able to do "
    "everything: create a user for it, and start it as that user."
)
_OFF = "BLOOM_SANDBOX is off, so trainings and model tasks can read everything that the server can read."


def server_warnings(mode: Policy) -> list[str]:
    """Sentences for people; tries whether there is a sandbox, so call it in a thread."""
    found = [_ROOT] if os.geteuid() == 0 else []
    if mode == "off":
        return [*found, _OFF]
    if (reason := why_no_sandbox()) is not None:
        effect = "Trainings do not start" if mode == "require" else "Trainings run without a sandbox"
        found.append(f"{effect}, and people's own scripts do not start. {reason}")
    return found
