"""Jobs: what to run, their progress, and their output. docs/jobs.md has the rules.

The worker uses `lease.py` and `ingest.py`; browsers use the routes. Nothing here starts a process.
"""
