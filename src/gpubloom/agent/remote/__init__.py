"""The agent's side of a bucket: fetches its job, runs it, pushes the run directory (docs/storage.md).

Only presigned addresses and the standard library; which service it runs on and who reads what it pushes, it
does not know.
"""
