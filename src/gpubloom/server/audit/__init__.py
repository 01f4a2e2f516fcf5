"""The audit log: who did what, in a chain of hashes that shows a changed, removed or inserted entry."""

from gpubloom.server.audit.recording import SYSTEM, Actor, record, record_apart
from gpubloom.server.audit.tables import AuditEvent, AuditHead

__all__ = ["SYSTEM", "Actor", "AuditEvent", "AuditHead", "record", "record_apart"]
