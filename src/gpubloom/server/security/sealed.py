"""Secrets that the server must be able to read again, encrypted at rest.

The key lies in a file of its own beside the database (BLOOM_HOME/secret.key, made at first use): a copy
of the database alone opens nothing. A sealed text is bound to its context, for example whose it is: moved
to another row, it does not open.

HMAC-SHA256 in counter mode for the key stream, and a second key's HMAC over context, nonce and ciphertext
(encrypt, then authenticate). Both keys follow from the key file and a fresh random nonce.
"""

import base64
import binascii
import hmac
import os
import secrets
from contextlib import suppress
from pathlib import Path

_VERSION = "1"
_KEY_BYTES = _NONCE_BYTES = _TAG_BYTES = _BLOCK = 32


class CannotOpen(ValueError):
    """A sealed text that was changed, moved, or sealed with another key."""


class Vault:
    """Seals and opens with the key of one installation."""

    def __init__(self, key: bytes) -> None:
        assert len(key) == _KEY_BYTES
        self._key = key

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
        hidden = self._stream(nonce, text.encode())
        content = nonce + hidden + self._tag(nonce, hidden, context)
        return f"{_VERSION}:{base64.b64encode(content).decode()}"

    def open(self, sealed: str, context: str) -> str:
        """The text again; raises when it is not what was sealed for this context."""
        version, _, encoded = sealed.partition(":")
        try:
            content = base64.b64decode(encoded, validate=True)
        except (binascii.Error, ValueError):
            content = b""
        if version != _VERSION or len(content) < _NONCE_BYTES + _TAG_BYTES:
            raise CannotOpen("This is not a sealed text of this version.")
        nonce, hidden = content[:_NONCE_BYTES], content[_NONCE_BYTES:-_TAG_BYTES]
        if not hmac.compare_digest(content[-_TAG_BYTES:], self._tag(nonce, hidden, context)):
            raise CannotOpen("The sealed text was changed, or sealed with another key.")
        return self._stream(nonce, hidden).decode()

    def _derived(self, purpose: bytes, nonce: bytes) -> bytes:
        return hmac.digest(self._key, purpose + b"\0" + nonce, "sha256")

    def _stream(self, nonce: bytes, content: bytes) -> bytes:
        key = self._derived(b"encrypt", nonce)
        blocks = range(-(-len(content) // _BLOCK))
        stream = b"".join(hmac.digest(key, block.to_bytes(8, "big"), "sha256") for block in blocks)
        return bytes(one ^ other for one, other in zip(content, stream, strict=False))

    def _tag(self, nonce: bytes, hidden: bytes, context: str) -> bytes:
        about = context.encode()
        message = len(about).to_bytes(8, "big") + about + nonce + hidden
        return hmac.digest(self._derived(b"authenticate", nonce), message, "sha256")
