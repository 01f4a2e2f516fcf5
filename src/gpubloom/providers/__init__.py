"""Where jobs run. A provider starts the agent on a machine, says whether it is alive, and can stop it.

It knows machines and processes, and nothing of databases, users or torch. Events of a run and commands for it
go through the run directory, not through here.
"""

from gpubloom.providers.base import AgentStatus, Provider, ProviderError, Reservation
from gpubloom.providers.local.devices import Devices
from gpubloom.providers.local.provider import LocalProvider

__all__ = ["AgentStatus", "Devices", "LocalProvider", "Provider", "ProviderError", "Reservation"]
