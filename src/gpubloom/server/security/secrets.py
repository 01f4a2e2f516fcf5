"""Random secrets and how they are stored: as a fingerprint, or sealed when the server must read them again.

Session and token secrets leave the server once. What stays is their SHA-256: they are 256 random bits, so a
slow hash would add nothing (passwords are another matter, see `passwords.py`).

What must be read again, such as a provider's credentials, is encrypted with a key in a file of its own beside
the database (BLOOM_HOME/secret.key, made at first use): a copy of the database alone opens nothing. A sealed
text is bound to its context, for example whose it is: moved to another row, it does not open. AES-256 in GCM,
with a fresh random nonce for every text.
"""

import base64
import binascii
import hashlib
import os
import secrets
import zlib
from contextlib import suppress
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

API_TOKEN_PREFIX = "bloom_"  # noqa: S105 - a public prefix, so that secret scanners can find leaked ones
_CHECKSUM_LENGTH = 6

_VERSION = "1"
_KEY_BYTES = 32
_NONCE_BYTES = 12


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


class CannotOpen(ValueError):
    """A sealed text that was changed, moved, or sealed with another key."""


class Vault:
    """Seals and opens with the key of one installation."""

    def __init__(self, key: bytes) -> None:
        assert len(key) == _KEY_BYTES
        self._cipher = AESGCM(key)

    @classmethod
    def of(cls, home: Path) -> "Vault":
        """The installation's vault; its key is made when there is none."""
        path = home / "secret.key"
        if not path.exists():
            home.mkdir(parents=True, exist_ok=True, mode=0o700)
            whole = home / f".secret.{secrets.token_hex(8)}"
            descriptor = os.open(whole, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(secrets.token_bytes(_KEY_BYTES))
                file.flush()
                os.fsync(file.fileno())
            # Of several processes that start at once, one makes the key; nobody reads half of it.
            with suppress(FileExistsError):
                os.link(whole, path)
            whole.unlink()
        key = path.read_bytes()
        if len(key) != _KEY_BYTES:
            raise CannotOpen(
                f"{path} does not contain a key of {_KEY_BYTES} bytes. Restore it from a backup."
            )
        return cls(key)

    def seal(self, text: str, context: str) -> str:
        """The text as it may be stored."""
        nonce = secrets.token_bytes(_NONCE_BYTES)
        content = nonce + self._cipher.encrypt(nonce, text.encode(), context.encode())
        return f"{_VERSION}:{base64.b64encode(content).decode()}"

    def open(self, sealed: str, context: str) -> str:
        """The text again; raises when it is not what was sealed for this context."""
        version, _, encoded = sealed.partition(":")
        try:
            content = base64.b64decode(encoded, validate=True)
        except (binascii.Error, ValueError):
            content = b""
        if version != _VERSION or len(content) <= _NONCE_BYTES:
            raise CannotOpen("The encrypted value has an unknown format.")
        try:
            nonce, hidden = content[:_NONCE_BYTES], content[_NONCE_BYTES:]
            return self._cipher.decrypt(nonce, hidden, context.encode()).decode()
        except InvalidTag:
            raise CannotOpen("The encrypted value was changed, or encrypted with another key.") from None
