"""Identity: accounts, passwords, sessions, API tokens, one-time links, sign-in through other services.

Every other subject asks `principal.py`. Nothing here knows what users own.
"""
