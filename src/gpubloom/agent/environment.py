"""What a training process inherits: the agent's environment without secrets, plus what the run needs.

The rule keeps an operator's secrets out of scripts, their logs and their crash reports. A job that needs
one gets it by name in its own environment. It is no sandbox: a process of the same user can read them by
other means.
"""

import re
from collections.abc import Mapping

from gpubloom.agent.spec import JobSpec

# Our own variables are settings of server and worker; they stay behind unless a training process reads them.
_BLOOM_ALLOWED = {"BLOOM_HOME", "BLOOM_DATA_ROOTS", "BLOOM_TRAINCARD", "BLOOM_GGUF_CONVERTER"}

_SECRET_WORDS = {
    "SECRET",
    "SECRETS",
    "PASSWORD",
    "PASSWD",
    "PASSPHRASE",
    "TOKEN",
    "CREDENTIAL",
    "CREDENTIALS",
}
_SECRET_ENDINGS = ("_KEY", "_KEY_ID", "_APIKEY", "_PAT", "_DSN")
# Doors rather than keys: what stands behind them signs and answers for the operator.
_SECRET_NAMES = {"SSH_AUTH_SOCK", "GPG_AGENT_INFO", "DATABASE_URL", "PGPASSFILE"}
# An address with a password in it, such as postgresql://bloom:hunter2@database/bloom.
_ADDRESS_WITH_PASSWORD = re.compile(r"\w://[^/\s:@]*:[^/\s@]+@")


def is_secret(name: str, value: str) -> bool:
    """Whether a variable stays behind when a training process starts."""
    upper = name.upper()
    if upper.startswith("BLOOM_"):
        return upper not in _BLOOM_ALLOWED
    return (
        upper in _SECRET_NAMES
        or upper.endswith(_SECRET_ENDINGS)
        or not _SECRET_WORDS.isdisjoint(upper.split("_"))
        or _ADDRESS_WITH_PASSWORD.search(value) is not None
    )


def training_environment(spec: JobSpec, inherited: Mapping[str, str]) -> dict[str, str]:
    """The whole environment of a training process."""
    return {
        **{name: value for name, value in inherited.items() if not is_secret(name, value)},
        # Output must reach the log when it is printed, not when a buffer is full.
        "PYTHONUNBUFFERED": "1",
        **spec.environment,
        "BLOOM_RUN_DIR": str(spec.run_dir),
        "BLOOM_ATTEMPT": str(spec.attempt),
        "BLOOM_JOB_ID": spec.job_id,
    }
