"""Modal: sandboxes billed by the second."""
