"""One installation under test: a home folder, a database, and the servers and browsers that use them."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from email import message_from_bytes, policy
from email.message import EmailMessage
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID, uuid4

from fastapi import FastAPI
from sqlalchemy import MetaData, create_engine, event, make_url, select
from sqlalchemy.orm import Session
from sqlalchemy.pool import NullPool
from starlette.testclient import TestClient

from gpubloom.server.accounts.principal import CSRF_HEADER
from gpubloom.server.accounts.registration import LIFETIMES
from gpubloom.server.accounts.schemas import Role
from gpubloom.server.accounts.sessions import IDLE_LIFE, cookie_name
from gpubloom.server.accounts.tables import ApiToken, BrowserSession, LinkPurpose, OneTimeLink, User
from gpubloom.server.app import create_app
from gpubloom.server.audit import AuditEvent
from gpubloom.server.clock import now
from gpubloom.server.db.base import Table
from gpubloom.server.security.secrets import fingerprint, new_api_token, new_secret
from gpubloom.server.settings import Settings

PASSWORD = "a walk in the quiet garden"
# As `tests/server/conftest.py` hashes: argon2id with the least memory and time.
PASSWORD_HASH = (
    "$argon2id$v=19$m=8,t=1,p=1$O7HFKRrE2ftXTxtEo5og7A$Mk9C3qBV0KozWwIIGqPWobeIN77zkY/k9Yk+KPeYJ7Q"
)


Row = TypeVar("Row", bound=Table)


class Browser(TestClient):
    """A browser with its own cookies; shares the server's event loop."""

    def signed_in_as(self, secret: str, csrf_token: str) -> "Browser":
        name = cookie_name(self.app.state.settings)
        self.cookies.clear()
        self.cookies.set(name, secret, domain=self.base_url.host, path="/")
        self.headers[CSRF_HEADER] = csrf_token
        return self

    @property
    def secret(self) -> str | None:
        """The session secret that the browser holds now."""
        return self.cookies.get(cookie_name(self.app.state.settings))


class Server:
    """A running app. Several may share one installation, as behind a load balancer."""

    def __init__(self, app: FastAPI, first: Browser, installation: "Installation") -> None:
        self.app = app
        self.settings: Settings = app.state.settings
        self.stranger = first
        self._installation = installation

    def browser(self, *, address: str = "testclient") -> Browser:
        """One more browser; nobody is signed in with it yet."""
        browser = Browser(
            self.app,
            base_url=self.stranger.base_url,
            follow_redirects=False,
            client=(address, 50000),
            raise_server_exceptions=False,
        )
        browser.portal = self.stranger.portal
        return browser

    def signed_in(self, user: User) -> Browser:
        """A browser with a session of this person's."""
        secret, row = self._installation.add_session(user)
        return self.browser().signed_in_as(secret, row.csrf_token)

    def program(self, user: User, *scopes: str, **changes: Any) -> Browser:
        """A program with an API token of this person's."""
        token, _ = self._installation.add_token(user, *scopes, **changes)
        program = self.browser()
        program.headers["Authorization"] = f"Bearer {token}"
        return program


class Installation:
    """What outlives a server process."""

    def __init__(self, home: Path, database_url: str) -> None:
        self.home = home
        self.database_url = database_url
        url = make_url(database_url)
        driver = "sqlite" if url.get_backend_name() == "sqlite" else "postgresql+psycopg"
        self._engine = create_engine(url.set(drivername=driver), poolclass=NullPool)
        if driver == "sqlite":
            # As the server does it: a test that reads and then writes waits its turn among workers.
            event.listen(self._engine, "connect", _manual_transactions)
            event.listen(self._engine, "begin", lambda opened: opened.exec_driver_sql("BEGIN IMMEDIATE"))
        # A test that only reads waits for nobody: a worker of the same process may be in a transaction.
        self._reading = create_engine(url.set(drivername=driver), poolclass=NullPool)

    @contextmanager
    def serve(self, **settings: Any) -> Iterator[Server]:
        app = create_app(Settings(_env_file=None, home=self.home, database_url=self.database_url, **settings))
        address = app.state.settings.address
        with Browser(app, base_url=address, follow_redirects=False, raise_server_exceptions=False) as first:
            yield Server(app, first, self)

    @contextmanager
    def session(self) -> Iterator[Session]:
        """A transaction on the database, past the server."""
        with Session(self._engine, expire_on_commit=False) as session, session.begin():
            yield session

    def add_user(
        self, name: str = "Ada", *, role: Role = "member", verified: bool = True, **changes: Any
    ) -> User:
        fields = {
            "id": uuid4(),
            "name": name,
            "email": f"{name.lower()}@example.org",
            "email_verified": now() if verified else None,
            "role": role,
            "password_hash": PASSWORD_HASH,
        }
        return self.add(User(**{**fields, **changes}))

    def add(self, row: Row) -> Row:
        with self.session() as session:
            session.add(row)
        return row

    def add_session(self, user: User, **changes: Any) -> tuple[str, BrowserSession]:
        secret = new_secret()
        fields = {
            "id": uuid4(),
            "user_id": user.id,
            "fingerprint": fingerprint(secret),
            "csrf_token": new_secret(),
            "expires": now() + IDLE_LIFE,
        }
        return secret, self.add(BrowserSession(**{**fields, **changes}))

    def add_token(self, user: User, *scopes: str, **changes: Any) -> tuple[str, ApiToken]:
        token = new_api_token()
        fields = {
            "id": uuid4(),
            "user_id": user.id,
            "name": "a program",
            "prefix": token[:12],
            "fingerprint": fingerprint(token),
            "scopes": " ".join(scopes or ("read", "write")),
            "expires_at": now() + timedelta(days=1),
        }
        return token, self.add(ApiToken(**{**fields, **changes}))

    def add_link(self, purpose: LinkPurpose, identifier: str, **changes: Any) -> str:
        secret = new_secret()
        fields = {
            "purpose": purpose,
            "identifier": identifier,
            "fingerprint": fingerprint(secret),
            "expires": now() + LIFETIMES[purpose],
        }
        self.add(OneTimeLink(**{**fields, **changes}))
        return secret

    def change(self, row: Table, **values: Any) -> None:
        """Change a stored row, for example to let time pass for it."""
        with self.session() as session:
            stored = session.get_one(type(row), row.id)  # type: ignore[attr-defined]
            for name, value in values.items():
                setattr(stored, name, value)

    def get(self, kind: type[Row], row_id: UUID) -> Row | None:
        with Session(self._reading) as session:
            return session.get(kind, row_id)

    def all(self, kind: type[Row]) -> list[Row]:
        with Session(self._reading) as session:
            return list(session.scalars(select(kind)))

    def actions(self) -> list[str]:
        """What the audit trail says was done, in order."""
        with self.session() as session:
            return list(session.scalars(select(AuditEvent.action).order_by(AuditEvent.at)))

    def everything_stored(self) -> str:
        """Every value of every table, to look for what must not be there."""
        stored = MetaData()
        stored.reflect(self._engine)
        with self.session() as session:
            rows = [row for table in stored.sorted_tables for row in session.execute(select(table))]
        return "\n".join(repr(tuple(row)) for row in rows)

    def sent_emails(self) -> list[EmailMessage]:
        """The emails in the outbox, oldest first."""
        return [
            message_from_bytes(path.read_bytes(), policy=policy.default)  # type: ignore[arg-type]
            for path in sorted((self.home / "outbox").glob("*.eml"))
        ]


def _manual_transactions(connection: Any, record: object) -> None:
    connection.isolation_level = None
    connection.execute("PRAGMA busy_timeout=15000")
    # What a test stores need not survive a power failure, and waiting for the disk takes long.
    connection.execute("PRAGMA synchronous=OFF")
    # A worker that would be the first to ask for it is refused at once while a test writes.
    connection.execute("PRAGMA journal_mode=WAL")


def link_secret(mail: EmailMessage) -> str:
    """The secret in an email's link."""
    found = re.search(r"#(?:token|invite)=(\S+)", mail.get_content())
    assert found, mail.get_content()
    return found[1]
