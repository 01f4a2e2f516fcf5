"""Secrets that the server must be able to read again, encrypted at rest.

The key lies in a file of its own beside the database (BLOOM_HOME/secret.key, made at first use): a copy
of the database alone opens nothing. A sealed text is bound to its context, for example whose it is: moved
to another row, it does not open. AES-256 in GCM, with a fresh random nonce for every text.
"""

import base64
import binascii
import os
import secrets
from contextlib import suppress
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

_VERSION = "1"
_KEY_BYTES = 32
_NONCE_BYTES = 12


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
            raise CannotOpen(f"{path} does not hold a key of {_KEY_BYTES} bytes. Restore it from a backup.")
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
            raise CannotOpen("This is not a sealed text of this version.")
        try:
            nonce, hidden = content[:_NONCE_BYTES], content[_NONCE_BYTES:]
            return self._cipher.decrypt(nonce, hidden, context.encode()).decode()
        except InvalidTag:
            raise CannotOpen("The sealed text was changed, or sealed with another key.") from None
