"""The audit log: who did what, in a chain of hashes that shows a changed, removed or inserted entry."""

from gpubloom.server.audit.recording import record, record_apart
from gpubloom.server.audit.tables import AuditEvent, AuditHead

__all__ = ["AuditEvent", "AuditHead", "record", "record_apart"]
