"""What admins see and decide: the people of this server, invitations, the audit trail."""
