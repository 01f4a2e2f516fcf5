"""Keeps secrets out of what a run records: printed lines, command lines, configs, addresses.

A secret is known by the name it has (`HF_TOKEN=…`, `--api-key …`), by its shape (tokens of well-known
services, private keys, passwords in addresses), or because a variable of this process with such a name has
this value. A secret without any of these marks cannot be recognised.
"""

import os
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

HIDDEN = "[hidden]"

_SECRET_WORDS = frozenset(
    {"SECRET", "SECRETS", "PASSWORD", "PASSWD", "PASSPHRASE", "TOKEN", "CREDENTIAL", "CREDENTIALS"}
)
_SECRET_ENDINGS = ("_KEY", "_KEY_ID", "_APIKEY", "_PAT", "_DSN")
# Doors rather than keys: what stands behind them signs and answers for the operator.
_SECRET_NAMES = frozenset({"SSH_AUTH_SOCK", "GPG_AGENT_INFO", "DATABASE_URL", "PGPASSFILE"})
# An address with a password in it, such as postgresql://bloom:hunter2@database/bloom.
_ADDRESS_WITH_PASSWORD = re.compile(r"(\w://[^/\s:@]*:)[^/\s@]+@")

# In configs also names without an underscore before "key"; "tokens" and "token_id" are the field's own words.
_CONFIG_NAMES = re.compile(
    r"(?:^|_)(?:api_?key|secret(?:_access)?_key|private_key|access_key(?:_id)?|password|passwd|passphrase"
    r"|secret|credentials?|(?:auth|access|api|hub|hf|bearer|push_to_hub)_token)$|^token$|^use_auth_token$",
    re.IGNORECASE,
)
# Every pattern takes time in proportion to its text: texts come from strangers, and a pattern that tries each
# position of a long word again stops the whole process.
_SHAPES = re.compile(
    r"\bhf_[A-Za-z0-9]{20,}|\b(?:ghp|gho|ghs|ghu)_[A-Za-z0-9]{30,}|\bgithub_pat_\w{30,}|\bglpat-[\w-]{20,}"
    r"|\bsk-[A-Za-z0-9_-]{20,}|\b(?:AKIA|ASIA)[A-Z0-9]{16}\b|\bxox[abprs]-[\w-]{10,}|\bAIza[\w-]{35}"
    r"|\bbloom_[A-Za-z0-9_-]{20,}"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----[\s\S]*?(?:-----END [A-Z ]*PRIVATE KEY-----|$)"
)
# A JSON web token. Of a word, only its first "eyJ" is tried: what follows the word is the same for all.
_WEB_TOKEN = re.compile(r"(?<![\w-])((?>[\w-]*?\b(?=eyJ)))eyJ[\w-]{10,}+\.[\w-]{10,}+\.[\w-]{5,}")
# What stands before the name, as in MY_API_KEY, stays as it is and need not be found.
_NAMED = re.compile(
    r"(?P<name>(?:api[_-]?key|secret(?:[_-]access)?[_-]key|password|passwd|passphrase|secret|token)"
    r"[\"']?\s*[=:]\s*[\"']?)(?P<value>[^\s\"',;&]{8,})",
    re.IGNORECASE,
)
_BEARER = re.compile(r"(\b(?:Bearer|Basic)\s+)[A-Za-z0-9._~+/=-]{12,}", re.IGNORECASE)
# What must stand in a text, in lower case, for any rule to hold; most lines have none of it. Looked for one
# by one: a pattern of all of them that ignores case takes ten times as long.
_HINTS = (
    "://", "hf_", "ghp_", "gho_", "ghs_", "ghu_", "github_pat", "glpat", "sk-", "akia", "asia", "xox", "aiza",
    "eyj", "bloom_", "begin ", "key", "pass", "secret", "token", "bearer", "basic",
)  # fmt: skip
_OPTION = re.compile(
    r"^--?(?:[\w-]*[-_])?(?:token|api-?_?key|password|passphrase|secret(?:-?_?key)?|access-?_?key)$",
    re.IGNORECASE,
)
_SHORTEST_VALUE = 8


def is_secret_variable(name: str, value: str) -> bool:
    """Whether an environment variable holds a secret: by its name, or as an address with a password."""
    upper = name.upper()
    return (
        upper in _SECRET_NAMES
        or upper.endswith(_SECRET_ENDINGS)
        or not _SECRET_WORDS.isdisjoint(upper.split("_"))
        or _ADDRESS_WITH_PASSWORD.search(value) is not None
    )


@lru_cache(maxsize=1)
def _known_values() -> re.Pattern[str] | None:
    """The secrets of this process's environment as it was when the first line was recorded."""
    values = {
        value
        for name, value in os.environ.items()
        if len(value) >= _SHORTEST_VALUE and is_secret_variable(name, value) and not os.path.exists(value)  # noqa: PTH110 - the value may be no path
    }
    return re.compile("|".join(map(re.escape, sorted(values, key=len, reverse=True)))) if values else None


def redact(text: str) -> str:
    """The text with every secret that can be recognised replaced."""
    known = _known_values()
    if known is not None:
        text = known.sub(HIDDEN, text)
    lowered = text.lower()
    for hint in _HINTS:
        if hint in lowered:
            break
    else:
        return text
    text = _ADDRESS_WITH_PASSWORD.sub(rf"\1{HIDDEN}@", text)
    text = _SHAPES.sub(HIDDEN, text)
    text = _WEB_TOKEN.sub(rf"\1{HIDDEN}", text)
    text = _BEARER.sub(rf"\1{HIDDEN}", text)
    return _NAMED.sub(lambda found: f"{found['name']}{HIDDEN}", text)


def redact_arguments(arguments: Sequence[str]) -> list[str]:
    """A command line; the argument after `--token` is a secret, whatever its shape."""
    found: list[str] = []
    hide = False
    for argument in arguments:
        found.append(HIDDEN if hide else redact(argument))
        hide = not hide and _OPTION.match(argument) is not None
    return found


def redact_config(value: Any, name: str = "") -> Any:
    """A config as plain JSON without the values of fields that are named like secrets."""
    if isinstance(value, Mapping):
        return {str(key): redact_config(inner, str(key)) for key, inner in value.items()}
    if name and value not in (None, "", False, True) and _CONFIG_NAMES.search(name):
        return HIDDEN
    if isinstance(value, (list, tuple)):
        return [redact_config(inner) for inner in value]
    return redact(value) if isinstance(value, str) else value
