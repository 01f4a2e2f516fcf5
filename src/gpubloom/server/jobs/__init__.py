"""Training jobs: what somebody wants trained, how far it is, and what it said. docs/jobs.md has the rules.

The worker uses `lease.py` and `ingest.py`; browsers use the routes. Nothing here starts a process.
"""
