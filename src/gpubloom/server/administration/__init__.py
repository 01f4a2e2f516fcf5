"""Administration: user accounts, invitations and the audit trail."""
