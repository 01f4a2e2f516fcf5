"""Lambda Cloud: on-demand virtual machines."""
