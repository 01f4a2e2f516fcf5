"""What a training process inherits: the agent's environment without secrets, plus what the run needs.

The rule keeps an operator's secrets out of scripts, their logs and their crash reports. A job that needs
one gets it by name in its own environment. It is no sandbox: a process of the same user can read them by
other means.
"""

from collections.abc import Mapping

from gpubloom.agent.spec import JobSpec
from gpubloom.traincard.redaction import is_secret_variable

# Our own variables are settings of server and worker; they stay behind unless a training process reads them.
_BLOOM_ALLOWED = {"BLOOM_HOME", "BLOOM_DATA_ROOTS", "BLOOM_TRAINCARD", "BLOOM_GGUF_CONVERTER"}


def is_secret(name: str, value: str) -> bool:
    """Whether a variable stays behind when a training process starts."""
    upper = name.upper()
    if upper.startswith("BLOOM_"):
        return upper not in _BLOOM_ALLOWED
    return is_secret_variable(name, value)


def training_environment(
    spec: JobSpec, inherited: Mapping[str, str], secrets: Mapping[str, str] | None = None
) -> dict[str, str]:
    """The whole environment of a training process. `secrets`: values of those that the job names."""
    own = {name: value for name, value in (secrets or {}).items() if name in spec.secrets}
    return {
        **{name: value for name, value in inherited.items() if not is_secret(name, value)},
        # Output must reach the log when it is printed, not when a buffer is full.
        "PYTHONUNBUFFERED": "1",
        **spec.environment,
        **own,
        "BLOOM_RUN_DIR": str(spec.run_dir),
        "BLOOM_ATTEMPT": str(spec.attempt),
        "BLOOM_JOB_ID": spec.job_id,
    }
