"""Outgoing connections of server and worker: which addresses they may reach, and the clients that obey.

`policy` decides and needs the standard library only; `clients` are the HTTP clients, loaded where they are
used. Nothing else in the server or the worker opens a connection to an address that a member chose.
"""

from gpubloom.egress.policy import EgressRefused, Policy

__all__ = ["EgressRefused", "Policy"]
