"""The names of all objects of a job. The same for every provider."""

import re
from dataclasses import dataclass

from gpubloom.errors import InputError

_JOB_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}")


@dataclass(frozen=True)
class JobLayout:
    """One attempt of one job. Each attempt has its own mailbox: an old one that comes back does no harm."""

    job_id: str
    attempt: int

    def __post_init__(self) -> None:
        if not _JOB_ID.fullmatch(self.job_id):
            raise InputError(
                "invalid_job_id", f"{self.job_id!r} is not a job id: use only letters, digits, - and _"
            )

    @property
    def folder(self) -> str:
        return f"jobs/{self.job_id}"

    @property
    def mailbox(self) -> str:
        return f"{self._own}/mailbox.json"

    @property
    def control(self) -> str:
        return f"{self._own}/control.json"

    @property
    def start_report(self) -> str:
        """What the machine says of its start, before its first batch."""
        return f"{self._own}/start-report"

    @property
    def batches(self) -> str:
        return f"{self._own}/in"

    def start(self, sha256: str) -> str:
        """Named by its content as well: a job that is sent again leaves the first address as it was."""
        return f"{self.folder}/bundle/start-{self.attempt}-{sha256[:16]}.py"

    def bundle_file(self, sha256: str) -> str:
        return f"{self.folder}/bundle/{sha256}"

    @property
    def artifacts(self) -> str:
        """What a job made, kept after its end."""
        return f"{self.folder}/artifacts"

    def artifact(self, sha256: str, path: str) -> str:
        """By its content; its own name comes last, so that a browser saves it under that."""
        name = re.sub(r"[^A-Za-z0-9._-]", "_", path.rpartition("/")[2])[-100:].lstrip(".") or "file"
        return f"{self.artifacts}/{sha256}/{name}"

    def slot(self, number: int) -> str:
        return f"{self.batches}/{number:08d}"

    @property
    def _own(self) -> str:
        return f"{self.folder}/a{self.attempt:04d}"
