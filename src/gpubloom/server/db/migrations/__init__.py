"""The schema's history, one file a step; `gpubloom.server.db.migrate` walks it."""
