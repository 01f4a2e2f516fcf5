"""Who somebody is: accounts, passwords, sessions, API tokens, one-time links, sign-in through others.

`principal.py` is the door every other subject uses. Nothing here knows what people own.
"""
