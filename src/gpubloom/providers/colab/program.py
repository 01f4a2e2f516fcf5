"""The official command `colab` (google-colab-cli), called as a program: it needs a newer Python than we do.

It is signed in to one Google account by whoever operates the server. Every call has a time limit. Nothing
secret is given to it in an argument or in code: it keeps both in its history.
"""

import asyncio
import os
import re
import shlex
from dataclasses import dataclass

from gpubloom.providers.cloud import Fault, FaultKind, remark_of, without_addresses

# In the order they are looked for, in what the program prints when it fails.
_SIGNS: tuple[tuple[FaultKind, re.Pattern[str]], ...] = (
    (
        "bad_credentials",
        re.compile(
            r"\b401\b|\b403\b|unauthenti|credentials|scope|log ?in|sign ?in|reauth|invalid_grant",
            re.IGNORECASE,
        ),
    ),
    ("rate_limited", re.compile(r"\b429\b|rate limit", re.IGNORECASE)),
    ("quota", re.compile(r"quota|entitlement|too many|usage limit|compute units|\b412\b", re.IGNORECASE)),
    ("no_capacity", re.compile(r"no .{0,30}available|not available|capacity", re.IGNORECASE)),
    ("gone", re.compile(r"not found|appears to be lost|\b404\b", re.IGNORECASE)),
    ("unavailable", re.compile(r"\b50\d\b|connect|network|temporar|unreachable|resolve", re.IGNORECASE)),
)
_SENTENCES: dict[FaultKind, str] = {
    "bad_credentials": "The command colab is not signed in: {}. Ask the operator to sign in on the server.",
    "quota": (
        "Colab does not allow this session for the account: {}. Choose another GPU, or buy compute units."
    ),
    "rate_limited": "Too many requests to Colab: {}. The request is retried later.",
    "no_capacity": "Colab has no free GPU of this type: {}. Wait, or choose another offer.",
    "gone": "Colab no longer has this session: {}.",
    "unavailable": "Colab cannot be reached: {}.",
    "refused": "Colab refused the request: {}.",
}


@dataclass(frozen=True)
class ColabProgram:
    """`command` is how it is called, such as `colab` or `colab --auth=oauth2`."""

    command: str
    timeout_seconds: float = 120.0

    async def call(self, *arguments: str, timeout_seconds: float | None = None) -> str:
        """What it prints. Fault: it failed, by a name of ours."""
        limit = timeout_seconds or self.timeout_seconds
        try:
            process = await asyncio.create_subprocess_exec(
                *shlex.split(self.command),
                *arguments,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
                env=_environment(),
            )
        except OSError as problem:
            raise Fault(
                "refused", f"The command {self.command!r} cannot be started: {problem.strerror}."
            ) from None
        try:
            output, _ = await asyncio.wait_for(process.communicate(), limit)
        except TimeoutError:
            process.kill()
            await process.wait()
            sentence = f"The command colab {arguments[0]} took longer than {limit:g} seconds."
            raise Fault("timed_out", sentence, uncertain=arguments[0] == "new") from None
        text = output.decode(errors="replace")
        if process.returncode != 0:
            raise fault_from(text, process.returncode or 0)
        return text


def _environment() -> dict[str, str]:
    """Without what is the server's own: its database, its keys."""
    return {name: value for name, value in os.environ.items() if not name.startswith("BLOOM_")}


def fault_from(output: str, code: int) -> Fault:
    """What the program printed when it failed, by a name of ours. The signs are read from its sources."""
    refused: FaultKind = "refused"
    kind = next((kind for kind, sign in _SIGNS if sign.search(output)), refused)
    lines = [line.removeprefix("[colab]").strip() for line in output.splitlines() if line.strip()]
    # The end of a trace says what happened; so does the first line that is no trace.
    remark = lines[-1] if lines else f"exit code {code}"
    remark = without_addresses(remark_of(remark)).rstrip(".")
    return Fault(kind, _SENTENCES[kind].format(remark))
