"""Ray: jobs on a cluster that a person runs."""
