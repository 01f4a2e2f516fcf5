"""People's own scripts: what they need of a machine, and notebooks of them. Nothing is run, nothing kept."""
