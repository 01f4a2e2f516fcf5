"""Signing in through GitHub or Google: the authorization-code flow with PKCE.

The browser carries the attempt's state in a short-lived cookie; the provider's answer must match it. Only
addresses that the provider has confirmed count, and the provider's tokens are dropped after one use.
"""

import base64
import hashlib
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import urlencode

import httpx2
from pydantic import TypeAdapter

from gpubloom.server.accounts.schemas import Email
from gpubloom.server.settings import Settings

_EMAIL: TypeAdapter[str] = TypeAdapter(Email)

ProviderName = Literal["github", "google"]
TIMEOUT_SECONDS = 15


class OAuthFailed(Exception):
    """The provider's answer cannot be used; `code` goes to the sign-in page."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


@dataclass(frozen=True)
class Provider:
    """Where a provider's endpoints are and how this server is known to it."""

    name: ProviderName
    client_id: str
    client_secret: str
    authorize_url: str
    token_url: str
    profile_url: str
    scope: str
    emails_url: str | None = None


@dataclass(frozen=True)
class Attempt:
    """One attempt to sign in, kept in the browser until the provider answers."""

    state: str
    verifier: str


@dataclass(frozen=True)
class Profile:
    """Who the provider says this is."""

    account_id: str
    email: str
    name: str


def configured_providers(settings: Settings) -> dict[ProviderName, Provider]:
    """The providers whose client id and secret are set."""
    providers: dict[ProviderName, Provider] = {}
    if settings.github_client_id and settings.github_client_secret:
        providers["github"] = Provider(
            name="github",
            client_id=settings.github_client_id,
            client_secret=settings.github_client_secret.get_secret_value(),
            authorize_url="https://github.com/login/oauth/authorize",
            token_url="https://github.com/login/oauth/access_token",  # noqa: S106 - an address
            profile_url="https://api.github.com/user",
            emails_url="https://api.github.com/user/emails",
            scope="read:user user:email",
        )
    if settings.google_client_id and settings.google_client_secret:
        providers["google"] = Provider(
            name="google",
            client_id=settings.google_client_id,
            client_secret=settings.google_client_secret.get_secret_value(),
            authorize_url="https://accounts.google.com/o/oauth2/v2/auth",
            token_url="https://oauth2.googleapis.com/token",  # noqa: S106 - an address
            profile_url="https://openidconnect.googleapis.com/v1/userinfo",
            scope="openid email profile",
        )
    return providers


def new_attempt() -> Attempt:
    """Fresh random state and PKCE verifier."""
    return Attempt(state=secrets.token_urlsafe(24), verifier=secrets.token_urlsafe(48))


def authorize_link(provider: Provider, attempt: Attempt, callback: str) -> str:
    """The provider's page that asks the person."""
    digest = hashlib.sha256(attempt.verifier.encode()).digest()
    query = {
        "client_id": provider.client_id,
        "redirect_uri": callback,
        "response_type": "code",
        "scope": provider.scope,
        "state": attempt.state,
        "code_challenge": base64.urlsafe_b64encode(digest).rstrip(b"=").decode(),
        "code_challenge_method": "S256",
    }
    return f"{provider.authorize_url}?{urlencode(query)}"


async def fetch_profile(provider: Provider, attempt: Attempt, *, code: str, callback: str) -> Profile:
    """Exchange the code for a token, ask who it is, and forget the token."""
    try:
        async with httpx2.AsyncClient(timeout=TIMEOUT_SECONDS, follow_redirects=False) as client:
            answer = await client.post(
                provider.token_url,
                headers={"Accept": "application/json"},
                data={
                    "client_id": provider.client_id,
                    "client_secret": provider.client_secret,
                    "code": code,
                    "redirect_uri": callback,
                    "grant_type": "authorization_code",
                    "code_verifier": attempt.verifier,
                },
            )
            token = answer.raise_for_status().json()["access_token"]
            headers = {"Authorization": f"Bearer {token}", "Accept": "application/json"}
            profile = (await client.get(provider.profile_url, headers=headers)).raise_for_status().json()
            emails: Any = []
            if provider.emails_url is not None:
                emails = (await client.get(provider.emails_url, headers=headers)).raise_for_status().json()
        return _read_profile(provider, profile, emails)
    except (httpx2.HTTPError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise OAuthFailed("oauth_failed") from error


def _read_profile(provider: Provider, profile: Mapping[str, Any], emails: Any) -> Profile:
    if provider.name == "github":
        confirmed = [entry["email"] for entry in emails if entry["primary"] and entry["verified"]]
        account_id = str(profile["id"])
    else:
        confirmed = [profile["email"]] if profile.get("email_verified") is True else []
        account_id = str(profile["sub"])
    if not confirmed:
        raise OAuthFailed("oauth_email_unverified")
    email = _EMAIL.validate_python(confirmed[0])
    # Names are free text elsewhere; here they stand on one line.
    name = "".join(mail for mail in str(profile.get("name") or "") if mail.isprintable()).strip()
    return Profile(account_id=account_id, email=email, name=(name or email.partition("@")[0])[:120])
