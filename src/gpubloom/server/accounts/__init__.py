"""Who somebody is: accounts, passwords, sessions, API tokens, one-time links, sign-in through others.

Every other subject asks `principal.py`. Nothing here knows what people own.
"""
