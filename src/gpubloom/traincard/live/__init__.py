"""The dashboard of one run over HTTP and WebSocket: no database, no account, the standard library only.

It reads the run directory like every other viewer, in a process of its own, and controls the run through
control.json. `feed.py` encodes the run as messages, `websocket.py` sends them, `server.py` has the routes.
"""
