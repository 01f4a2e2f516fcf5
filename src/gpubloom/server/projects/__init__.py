"""Projects: what somebody wants to train, and with which data."""
