"""Directory sync: the rules by which a run directory is copied to another machine while it grows.

`files` says what kind each file is, by its path: append-only, immutable or replaceable. `delta` turns what
changed since the last delta into entries; `accepted` says which entries a receiver accepts; `apply` applies
them, so that applying one twice changes nothing. Standard library only.

Two transports use it. The mirror (`gpubloom.traincard.mirror`) keeps a readable run directory in a bucket.
The remote agent (`gpubloom.agent.remote`) sends deltas through presigned addresses, and `gpubloom.storage`
receives them.
"""
