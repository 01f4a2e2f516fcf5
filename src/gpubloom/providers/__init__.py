"""Where jobs run. A provider starts the agent somewhere, says whether it lives, and can stop it.

It knows machines and processes, and nothing of databases, users or torch. What a run says and is told goes
through its run directory, not through here.
"""

from gpubloom.providers.base import AgentStatus, Provider, ProviderError, Reservation
from gpubloom.providers.local.devices import Devices
from gpubloom.providers.local.provider import LocalProvider

__all__ = ["AgentStatus", "Devices", "LocalProvider", "Provider", "ProviderError", "Reservation"]
