"""The JSON of accounts."""

import re
from datetime import datetime
from typing import Annotated, Literal
from uuid import UUID

from pydantic import AfterValidator, ConfigDict, Field, JsonValue, SecretStr
from pydantic_core import PydanticCustomError

from gpubloom.server.schema import Flag, Line, Schema, StorableSecret, Whole
from gpubloom.server.security.password_strength import LONGEST, SHORTEST

Factor = Literal["totp", "passkey", "recovery_code"]
Role = Literal["admin", "member"]

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


def _code(code: SecretStr) -> SecretStr:
    if not code.get_secret_value().isascii():
        raise PydanticCustomError("wrong_code", "A code has only letters, digits and hyphens.")
    return code


Email = Annotated[Line, Field(min_length=3, max_length=254), AfterValidator(_email)]
Name = Annotated[Line, Field(min_length=1, max_length=120)]
# Checked for strength where it is chosen, not where it is typed to sign in.
Password = Annotated[SecretStr, Field(max_length=1024), StorableSecret]
# Described only: the check of its strength says what is wrong with one that is too short or too long.
ChosenPassword = Annotated[Password, Field(json_schema_extra={"minLength": SHORTEST, "maxLength": LONGEST})]
TypedCode = Annotated[SecretStr, Field(min_length=1, max_length=64), AfterValidator(_code)]
# Base64url of what an authenticator made; the largest are attestations of a few kilobytes.
Encoded = Annotated[str, Field(min_length=1, max_length=16_384, pattern="^[A-Za-z0-9_-]+$")]
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
    password: Password


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


class SecondStep(Schema):
    """The first step of a sign-in succeeded, and one of these second factors completes it."""

    second_factors: list[Factor]


class FactorCode(Schema):
    """A code of an authenticator app, or a recovery code."""

    code: TypedCode


class BrowserCredential(Schema):
    """What a browser returns for a passkey. The names are those of WebAuthn; other fields are ignored."""

    model_config = ConfigDict(extra="ignore")

    id: Encoded
    type: Literal["public-key"]
    response: Schema

    def for_library(self) -> dict[str, JsonValue]:
        """As py_webauthn reads it."""
        return {"id": self.id, "rawId": self.id, "type": self.type, "response": self.response.model_dump()}


class PasskeyCreation(Schema):
    model_config = ConfigDict(extra="ignore")

    clientDataJSON: Encoded  # noqa: N815
    attestationObject: Encoded  # noqa: N815


class PasskeySignature(Schema):
    model_config = ConfigDict(extra="ignore")

    clientDataJSON: Encoded  # noqa: N815
    authenticatorData: Encoded  # noqa: N815
    signature: Encoded


class MadeCredential(BrowserCredential):
    """A new passkey."""

    response: PasskeyCreation


class SignedCredential(BrowserCredential):
    """A signature with a passkey."""

    response: PasskeySignature


class PasskeyOptions(Schema):
    """What the browser's WebAuthn functions take, in the JSON form that WebAuthn defines."""

    options: dict[str, JsonValue]


class PasskeySignIn(Schema):
    credential: SignedCredential


class Confirmation(Schema):
    """What a sign-in asks for: a passkey; or the password, and a code when a second factor is set up."""

    password: Password | None = None
    code: TypedCode | None = None
    credential: SignedCredential | None = None


class ConfirmMethods(Schema):
    """How you can confirm that it is you. Without any, sign in again with one of `providers`."""

    password: bool
    code: bool
    passkey: bool
    providers: list[str]


class TotpSetup(Schema):
    """A new secret for an authenticator app, also as a QR code. It counts after its first code."""

    secret: str
    link: str
    qr_code: str


class RecoveryCodes(Schema):
    """New recovery codes. Only this response contains them. Empty: the earlier ones stay valid."""

    recovery_codes: list[str]


class PasskeyOut(Schema):
    id: UUID
    name: str
    created_at: datetime
    last_used_at: datetime | None


class NewPasskey(Schema):
    name: Name
    credential: MadeCredential


class PasskeyChange(Schema):
    name: Name


class AddedPasskey(RecoveryCodes):
    passkey: PasskeyOut


class FactorsOut(Schema):
    """Your second factors. `passkeys_unavailable` says why this server cannot use passkeys."""

    totp_enabled_at: datetime | None
    passkeys: list[PasskeyOut]
    recovery_codes_left: int
    passkeys_unavailable: str | None


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
    passkeys: bool
    user: UserOut | None
    csrf_token: str | None
    folder: str | None = Field(
        None, description="The folder whose runs `bloom ui` shows. None: a server with accounts."
    )


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
