"""Counts how often something happens, in the database, so that all servers count together.

Fixed windows: one row per key and window, raised by one statement. The count is committed before the
attempt is looked at, so a request that fails or dies is counted too. Addresses are counted by network
(`network_of`): an IPv6 customer has 2**64 addresses to guess from.
"""

from datetime import datetime
from hashlib import sha256
from ipaddress import IPv4Address, IPv6Network, ip_address

from sqlalchemy import BigInteger, delete
from sqlalchemy.dialects.postgresql import insert as postgresql_insert
from sqlalchemy.dialects.sqlite import insert as sqlite_insert
from sqlalchemy.orm import Mapped, mapped_column

from gpubloom.server.clock import now
from gpubloom.server.db.base import Table
from gpubloom.server.db.database import Database
from gpubloom.server.problems import TooManyRequests


class RateCount(Table):
    """How often a key was seen in the window that began at `window`."""

    __tablename__ = "rate_counts"

    key: Mapped[str] = mapped_column(primary_key=True)
    window: Mapped[int] = mapped_column(BigInteger, primary_key=True)
    count: Mapped[int]
    expires: Mapped[datetime]


class Rate:
    """At most `limit` times per `seconds` for one key."""

    def __init__(self, name: str, *, limit: int, seconds: int) -> None:
        self.name = name
        self.limit = limit
        self.seconds = seconds

    async def count(self, database: Database, *key: str) -> None:
        """Count one more; raises when it is one too many."""
        moment = now()
        window = int(moment.timestamp()) // self.seconds
        ends = (window + 1) * self.seconds
        insert = sqlite_insert if database.kind == "sqlite" else postgresql_insert
        hashed = self._hashed(key)
        statement = (
            insert(RateCount)
            .values(
                key=hashed, window=window, count=1, expires=datetime.fromtimestamp(ends, tz=moment.tzinfo)
            )
            .on_conflict_do_update(
                index_elements=[RateCount.key, RateCount.window], set_={"count": RateCount.count + 1}
            )
            .returning(RateCount.count)
        )
        async with database.write() as session:
            seen = (await session.execute(statement)).scalar_one()
            if seen == 1:
                await session.execute(delete(RateCount).where(RateCount.expires < moment))
        if seen > self.limit:
            wait = max(1, ends - int(moment.timestamp()))
            minutes = -(-wait // 60)
            raise TooManyRequests(
                f"Too many attempts. Try again in {minutes} minute{'s' if minutes > 1 else ''}.",
                retry_after=wait,
            )

    async def forget(self, database: Database, *key: str) -> None:
        """Begin to count anew: what was counted turned out to be harmless."""
        async with database.write() as session:
            await session.execute(delete(RateCount).where(RateCount.key == self._hashed(key)))

    def _hashed(self, key: tuple[str, ...]) -> str:
        # Hashed, so that the table tells nobody who tried to sign in.
        parts = (self.name, *(network_of(part) for part in key))
        return sha256("\x1f".join(parts).encode(errors="replace")).hexdigest()


def network_of(address: str) -> str:
    """What counts as one client: an IPv4 address, or the /64 network that one IPv6 customer is given.

    Anything else stays as it is. IPv4 addresses that arrive in IPv6 notation count as IPv4.
    """
    try:
        found = ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(found, IPv4Address):
        return str(found)
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(IPv6Network((found, 64), strict=False))
