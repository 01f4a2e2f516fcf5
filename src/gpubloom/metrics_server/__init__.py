"""The metrics server: the dashboard of one run over HTTP and WebSocket, without a database or an account.

It reads the run directory like every other viewer, in a process of its own, and controls the run through
control.json. `feed.py` encodes the run as messages, `server.py` has the routes (starlette), `process.py`
starts and ends the server (uvicorn). It lies beside `traincard`, which needs the standard library only.
"""
