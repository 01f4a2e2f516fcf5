"""The names of machines at a provider: installation, job and attempt."""

import re
from dataclasses import dataclass
from typing import Self
from uuid import UUID

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from gpubloom.providers.cloud import KEY_PREFIX
from gpubloom.server.rentals.tables import Installation

_KEY = re.compile(rf"{KEY_PREFIX}([0-9a-f]{{8}})-([0-9a-f]{{32}})-a([1-9][0-9]{{0,8}})")


@dataclass(frozen=True)
class MachineKey:
    """bloom-<installation>-<job>-a<attempt>; at most 64 characters, as the strictest service demands."""

    installation: str
    job_id: UUID
    attempt: int

    def __str__(self) -> str:
        return f"{KEY_PREFIX}{self.installation}-{self.job_id.hex}-a{self.attempt}"

    @classmethod
    def read(cls, text: str) -> Self | None:
        """None: the key has another format, so the machine is not ours."""
        found = _KEY.fullmatch(text)
        return None if found is None else cls(found[1], UUID(hex=found[2]), int(found[3]))


async def installation_name(session: AsyncSession) -> str:
    """Eight digits that tell this installation from another one with the same account at a provider."""
    found = (await session.scalars(select(Installation.id).order_by(Installation.id))).first()
    assert found is not None, "the migration made it"
    return found.hex[:8]
