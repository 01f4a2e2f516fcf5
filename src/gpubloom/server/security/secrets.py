"""Random secrets and how they are stored: as a fingerprint, or sealed when the server must read them again.

Session and token secrets leave the server once. What stays is their SHA-256: they are 256 random bits, so a
slow hash would add nothing (passwords are another matter, see `passwords.py`).

What must be read again, such as a provider's credentials, is encrypted with a key in a file of its own beside
the database (BLOOM_HOME/secret.key, made at first use): a copy of the database alone opens nothing. A sealed
text is bound to its context, for example whose it is: moved to another row, it does not open. AES-256 in GCM,
with a fresh random nonce for every text.
"""

import base64
import hashlib
import hmac
import os
import secrets
import zlib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from gpubloom.errors import CodedError

API_TOKEN_PREFIX = "bloom_"  # noqa: S105 - a public prefix, so that secret scanners can find leaked ones
_CHECKSUM_LENGTH = 6

KEY_FILE = "secret.key"
# There only while a key is rotated (`server/key_rotation.py`).
OLD_KEY_FILE = "secret.key.old"
KEY_BYTES = 32
_VERSION = "1"
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


@dataclass(frozen=True)
class SealedColumn:
    """A column with sealed texts, and the context of the text in a row of its table. `key_rotation` lists the
    columns of all modules that seal."""

    table: Any
    name: str
    context: Callable[[Any], str]


class KeyInUse(CodedError):
    """The key cannot be replaced now. The text says what uses it."""

    code = "key_in_use"


class CannotOpen(ValueError):
    """A sealed text that was changed, moved, or sealed with another key."""


class Vault:
    """Seals and opens with the key of one installation. `older` keys open, and never seal."""

    def __init__(self, key: bytes, *older: bytes) -> None:
        assert all(len(each) == KEY_BYTES for each in (key, *older))
        self._keys = (key, *older)
        self._ciphers = [AESGCM(each) for each in self._keys]

    @classmethod
    def of(cls, home: Path) -> "Vault":
        """The installation's vault; its key is made when there is none."""
        path = home / KEY_FILE
        if not path.exists():
            home.mkdir(parents=True, exist_ok=True, mode=0o700)
            whole = write_new_key(home)
            # Of several processes that start at once, one makes the key; nobody reads half of it.
            with suppress(FileExistsError):
                os.link(whole, path)
            whole.unlink()
        # In this order: the old key is put aside before the new one takes its place.
        keys = [read_key(path)]
        with suppress(FileNotFoundError):
            keys.append(read_key(home / OLD_KEY_FILE))
        return cls(*keys)

    def seal(self, text: str, context: str) -> str:
        """The text as it may be stored."""
        nonce = secrets.token_bytes(_NONCE_BYTES)
        content = nonce + self._ciphers[0].encrypt(nonce, text.encode(), context.encode())
        return f"{_VERSION}:{base64.b64encode(content).decode()}"

    def open(self, sealed: str, context: str) -> str:
        """The text again; raises when it is not what was sealed for this context."""
        version, _, encoded = sealed.partition(":")
        try:
            content = base64.b64decode(encoded, validate=True)
        except ValueError:
            content = b""
        if version != _VERSION or len(content) <= _NONCE_BYTES:
            raise CannotOpen("The encrypted value has an unknown format.")
        nonce, hidden = content[:_NONCE_BYTES], content[_NONCE_BYTES:]
        for cipher in self._ciphers:
            with suppress(InvalidTag):
                return cipher.decrypt(nonce, hidden, context.encode()).decode()
        raise CannotOpen("The encrypted value was changed, or encrypted with another key.")

    def sign(self, text: str, context: str) -> str:
        """An HMAC-SHA-256 that only a holder of the key can make."""
        return _hmac(self._keys[0], text, context)

    def has_signed(self, text: str, signature: str, context: str) -> bool:
        """Whether `sign` made this signature, with the present key or an older one."""
        return any(
            hmac.compare_digest(_hmac(key, text, context).encode(), signature.encode()) for key in self._keys
        )


def _hmac(key: bytes, text: str, context: str) -> str:
    # A key of its own for each purpose: what signs never encrypts.
    own = hmac.digest(key, f"signing {context}".encode(), "sha256")
    return hmac.new(own, text.encode(), "sha256").hexdigest()


def write_new_key(home: Path) -> Path:
    """A new random key in a hidden file that only its owner reads, safe on the disk."""
    whole = home / f".secret.{secrets.token_hex(8)}"
    descriptor = os.open(whole, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(secrets.token_bytes(KEY_BYTES))
        file.flush()
        os.fsync(file.fileno())
    return whole


def read_key(path: Path) -> bytes:
    key = path.read_bytes()
    if len(key) != KEY_BYTES:
        raise CannotOpen(f"{path} does not contain a key of {KEY_BYTES} bytes. Restore it from a backup.")
    return key
