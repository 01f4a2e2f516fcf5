"""The JSON of accounts."""

import re
from datetime import datetime
from typing import Annotated, Literal
from uuid import UUID

from pydantic import AfterValidator, Field, SecretStr
from pydantic_core import PydanticCustomError

from gpubloom.server.accounts.tables import Role
from gpubloom.server.schema import Flag, Line, Schema, Whole
from gpubloom.server.security.password_strength import LONGEST, SHORTEST

Scope = Literal["read", "write", "admin"]
ProviderName = Literal["github", "google", "oidc"]


# What browsers accept in <input type="email">. It leaves no room for what mail programs read as several
# addresses, comments or groups: the mailbox that gets the email is the one that was written.
_LABEL = "[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
EMAIL_PATTERN = re.compile(rf"[A-Za-z0-9.!#$%&'*+/=?^_`{{|}}~-]+@{_LABEL}(?:\.{_LABEL})*")


def _email(text: str) -> str:
    if EMAIL_PATTERN.fullmatch(text) is None:
        raise PydanticCustomError("invalid_email", "Enter a valid email address.")
    return text.lower()


Email = Annotated[Line, Field(min_length=3, max_length=254), AfterValidator(_email)]
Name = Annotated[Line, Field(min_length=1, max_length=120)]
# Checked for strength where it is chosen, not where it is typed to sign in.
Password = Annotated[SecretStr, Field(max_length=1024)]
# Described only: the check of its strength says what is wrong with one that is too short or too long.
ChosenPassword = Annotated[Password, Field(json_schema_extra={"minLength": SHORTEST, "maxLength": LONGEST})]
LinkToken = Annotated[str, Field(min_length=1, max_length=256)]


class SignUp(Schema):
    name: Name
    email: Email
    password: ChosenPassword
    invitation: LinkToken | None = None


class Setup(Schema):
    token: LinkToken
    name: Name
    email: Email
    password: ChosenPassword


class SignIn(Schema):
    email: Email
    password: Password


class Verify(Schema):
    token: LinkToken


class EmailOnly(Schema):
    email: Email


class ResetPassword(Schema):
    token: LinkToken
    password: ChosenPassword
    keep_tokens: Flag = False


class ChangePassword(Schema):
    """The old and the new password. API tokens are revoked unless they are kept on purpose."""

    current_password: Password
    new_password: ChosenPassword
    keep_tokens: Flag = False


class PasswordToRate(Schema):
    """A password that somebody thinks of choosing, and what they have entered about themselves so far."""

    password: Password
    email: Annotated[str, Field(max_length=254)] = ""
    name: Annotated[str, Field(max_length=120)] = ""


class PasswordStrength(Schema):
    """A score from 0 to 4, and advice in plain words when the password would be refused."""

    score: int
    advice: str | None


class ProfileChange(Schema):
    name: Name


class UserOut(Schema):
    """A user account, as the user and admins see it."""

    id: UUID
    name: str
    email: str
    email_verified: datetime | None
    image: str | None
    role: Role
    created_at: datetime
    updated_at: datetime


class SignedIn(Schema):
    user: UserOut
    csrf_token: str


class SignedUp(Schema):
    detail: str
    verification_required: bool


class AuthState(Schema):
    """What the web app needs before sign-in."""

    setup_required: bool
    signup: Literal["open", "closed"]
    mail: Literal["smtp", "outbox"]
    oauth_providers: list[ProviderName]
    # What the operator calls the OpenID Connect provider.
    oidc_name: str
    user: UserOut | None
    csrf_token: str | None


class SessionOut(Schema):
    id: UUID
    current: bool
    created_at: datetime
    last_seen_at: datetime
    expires_at: datetime
    ip_address: str | None
    user_agent: str | None


class Sessions(Schema):
    items: list[SessionOut]


class LinkedAccountOut(Schema):
    """Your account at a sign-in provider, with which you can sign in here."""

    id: UUID
    provider: str
    email: str | None
    created_at: datetime


class LinkedAccounts(Schema):
    items: list[LinkedAccountOut]


class NewLink(Schema):
    provider: ProviderName


class LinkStart(Schema):
    """The page of the sign-in provider to go to."""

    address: str


class NewApiToken(Schema):
    name: Name
    scopes: Annotated[list[Scope], Field(min_length=1, max_length=3)]
    expires_in_days: Annotated[Whole, Field(ge=1, le=365)] = 90


class ApiTokenOut(Schema):
    id: UUID
    name: str
    prefix: str
    scopes: list[Scope]
    created_at: datetime
    expires_at: datetime
    last_used_at: datetime | None


class ApiTokens(Schema):
    items: list[ApiTokenOut]


class CreatedApiToken(Schema):
    """A new API token. Only this response contains the token itself."""

    token: str
    api_token: ApiTokenOut
