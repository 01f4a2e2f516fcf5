"""Projects: what to train, and with which data."""
