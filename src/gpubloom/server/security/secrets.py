"""Random secrets and the form they are stored in.

A secret leaves the server once. What stays is its SHA-256: the secrets here are 256 random bits, so a slow
hash would add nothing (passwords are another matter, see `passwords.py`).
"""

import hashlib
import secrets
import zlib

API_TOKEN_PREFIX = "bloom_"  # noqa: S105 - a public prefix, so that secret scanners can find leaked ones
_CHECKSUM_LENGTH = 6


def new_secret() -> str:
    """256 random bits, safe in URLs and cookies."""
    return secrets.token_urlsafe(32)


def fingerprint(secret: str) -> str:
    """What is stored in a secret's place."""
    return hashlib.sha256(secret.encode()).hexdigest()


def _checksum(body: str) -> str:
    return f"{zlib.crc32(body.encode()):08x}"[-_CHECKSUM_LENGTH:]


def new_api_token() -> str:
    """A token that a program presents: recognisable prefix, random body, checksum."""
    body = secrets.token_hex(24)
    return f"{API_TOKEN_PREFIX}{body}{_checksum(body)}"


def looks_like_api_token(token: str) -> bool:
    """Whether the checksum fits: a mistyped token is refused without asking the database."""
    if not token.startswith(API_TOKEN_PREFIX) or not token.isascii():
        return False
    rest = token.removeprefix(API_TOKEN_PREFIX)
    body, checksum = rest[:-_CHECKSUM_LENGTH], rest[-_CHECKSUM_LENGTH:]
    return len(body) == 48 and secrets.compare_digest(checksum, _checksum(body))
