"""Sign-in providers: GitHub, Google, and any OpenID Connect provider that the operator names.

All use the authorization-code flow with PKCE (authlib). An OpenID Connect provider is found by discovery, and
its id token counts only with a signature by the provider's published keys and with the nonce of this attempt.
The provider's tokens are never stored.
"""

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import urlsplit

import httpx2
from authlib.integrations.httpx_client import AsyncOAuth2Client, OAuthError
from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import KeySet
from pydantic import BaseModel, TypeAdapter

from gpubloom.egress import EgressRefused, Policy
from gpubloom.egress.clients import async_client, async_transports
from gpubloom.server.accounts.schemas import Email, ProviderName
from gpubloom.server.settings import Settings

TIMEOUT_SECONDS = 15
# Signatures that need a private key: whoever can check one cannot make one.
_ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
_CLOCK_SKEW_SECONDS = 60
_LONGEST_ADDRESS = 2_000

_EMAIL: TypeAdapter[str] = TypeAdapter(Email)

# A provider that is away, refuses, or answers with something else.
_UNREADABLE = (ValueError, KeyError, TypeError, AttributeError)
_FAILURES = (OAuthError, JoseError, httpx2.HTTPError, EgressRefused, *_UNREADABLE)


class OAuthFailed(Exception):
    """The sign-in failed; `code` goes to the page that the person comes back to."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


@dataclass(frozen=True)
class Endpoints:
    """The addresses of a provider. Without `profile_url`, all is in the id token."""

    authorize_url: str
    token_url: str
    profile_url: str | None
    emails_url: str | None = None
    keys_url: str | None = None
    client_authentication: Literal["client_secret_post", "client_secret_basic"] = "client_secret_post"


@dataclass(frozen=True)
class Provider:
    """A provider, and this server's client id and secret there. One with an issuer is found by discovery."""

    name: ProviderName
    client_id: str
    client_secret: str
    scope: str
    endpoints: Endpoints | None = None
    issuer: str | None = None


@dataclass(frozen=True)
class Attempt:
    """One attempt to sign in, kept in the browser until the provider answers."""

    state: str
    verifier: str
    nonce: str


@dataclass(frozen=True)
class Profile:
    """The account that the provider names. `email` is None unless the provider has verified it. `picture`:
    the address of the person's picture."""

    account_id: str
    email: str | None
    name: str
    picture: str | None = None


def configured_providers(settings: Settings) -> dict[ProviderName, Provider]:
    """The providers whose client id and secret are set."""
    providers: dict[ProviderName, Provider] = {}
    if settings.github_client_id and settings.github_client_secret:
        providers["github"] = Provider(
            name="github",
            client_id=settings.github_client_id,
            client_secret=settings.github_client_secret.get_secret_value(),
            scope="read:user user:email",
            endpoints=Endpoints(
                authorize_url="https://github.com/login/oauth/authorize",
                token_url="https://github.com/login/oauth/access_token",  # noqa: S106 - an address
                profile_url="https://api.github.com/user",
                emails_url="https://api.github.com/user/emails",
            ),
        )
    if settings.google_client_id and settings.google_client_secret:
        providers["google"] = Provider(
            name="google",
            client_id=settings.google_client_id,
            client_secret=settings.google_client_secret.get_secret_value(),
            scope="openid email profile",
            endpoints=Endpoints(
                authorize_url="https://accounts.google.com/o/oauth2/v2/auth",
                token_url="https://oauth2.googleapis.com/token",  # noqa: S106 - an address
                profile_url="https://openidconnect.googleapis.com/v1/userinfo",
            ),
        )
    if settings.oidc_issuer and settings.oidc_client_id and settings.oidc_client_secret:
        providers["oidc"] = Provider(
            name="oidc",
            client_id=settings.oidc_client_id,
            client_secret=settings.oidc_client_secret.get_secret_value(),
            scope="openid email profile",
            issuer=settings.oidc_issuer,
        )
    return providers


def new_attempt() -> Attempt:
    """Fresh random state, PKCE verifier and nonce."""
    return Attempt(
        state=secrets.token_urlsafe(24), verifier=secrets.token_urlsafe(48), nonce=secrets.token_urlsafe(24)
    )


async def authorize_link(provider: Provider, attempt: Attempt, callback: str) -> str:
    """The provider's page that asks for permission."""
    endpoints = await _endpoints(provider)
    more = {"nonce": attempt.nonce} if provider.issuer else {}
    async with _client(provider, endpoints, callback) as client:
        link, _ = client.create_authorization_url(
            endpoints.authorize_url, state=attempt.state, code_verifier=attempt.verifier, **more
        )
    return str(link)


async def fetch_profile(provider: Provider, attempt: Attempt, *, code: str, callback: str) -> Profile:
    """Exchange the code for a token, read the profile with it, and drop the token."""
    endpoints = await _endpoints(provider)
    try:
        async with _client(provider, endpoints, callback) as client:
            token = await client.fetch_token(endpoints.token_url, code=code, code_verifier=attempt.verifier)
            claims: dict[str, Any] = {}
            if endpoints.keys_url is not None:
                keys = await client.request("GET", endpoints.keys_url, withhold_token=True)
                claims = _check_id_token(
                    provider, attempt, str(token["id_token"]), keys.raise_for_status().json()
                )
            profile: Any = claims
            if endpoints.profile_url is not None and "email" not in claims:
                profile = (await client.get(endpoints.profile_url)).raise_for_status().json()
                if claims and profile["sub"] != claims["sub"]:
                    raise OAuthFailed("oauth_failed")
            emails: Any = []
            if endpoints.emails_url is not None:
                emails = (await client.get(endpoints.emails_url)).raise_for_status().json()
        return _read_profile(provider, profile, emails)
    except _FAILURES as error:
        raise OAuthFailed("oauth_failed") from error


def _client(provider: Provider, endpoints: Endpoints, callback: str) -> Any:
    return AsyncOAuth2Client(
        provider.client_id,
        provider.client_secret,
        token_endpoint_auth_method=endpoints.client_authentication,
        code_challenge_method="S256",
        scope=provider.scope,
        redirect_uri=callback,
        timeout=TIMEOUT_SECONDS,
        follow_redirects=False,
        **async_transports(policy_of(provider)),
    )


def policy_of(provider: Provider) -> Policy:
    """The operator chose the issuer; what it names elsewhere must be public."""
    if provider.endpoints is None:
        return Policy.of_operator(provider.issuer or "")
    return Policy.of_operator(provider.endpoints.token_url, provider.endpoints.profile_url or "")


class _Discovered(BaseModel):
    """What OpenID Connect Discovery publishes of a provider."""

    issuer: str
    authorization_endpoint: str
    token_endpoint: str
    jwks_uri: str
    userinfo_endpoint: str | None = None
    token_endpoint_auth_methods_supported: tuple[str, ...] = ("client_secret_basic",)


async def _endpoints(provider: Provider) -> Endpoints:
    if provider.endpoints is not None:
        return provider.endpoints
    assert provider.issuer is not None
    try:
        async with async_client(policy_of(provider), timeout=TIMEOUT_SECONDS) as client:
            address = f"{provider.issuer.rstrip('/')}/.well-known/openid-configuration"
            answer = (await client.get(address)).raise_for_status()
        found = _Discovered.model_validate_json(answer.content)
    except _FAILURES as error:
        raise OAuthFailed("oauth_failed") from error
    named = (found.authorization_endpoint, found.token_endpoint, found.jwks_uri, found.userinfo_endpoint)
    scheme = urlsplit(provider.issuer).scheme
    # A provider over TLS does not send people, or this server's secret, anywhere else.
    if found.issuer != provider.issuer or {urlsplit(url).scheme for url in named if url} - {"https", scheme}:
        raise OAuthFailed("oauth_failed")
    posted = "client_secret_post" in found.token_endpoint_auth_methods_supported
    return Endpoints(
        authorize_url=found.authorization_endpoint,
        token_url=found.token_endpoint,
        profile_url=found.userinfo_endpoint,
        keys_url=found.jwks_uri,
        client_authentication="client_secret_post" if posted else "client_secret_basic",
    )


def _check_id_token(provider: Provider, attempt: Attempt, id_token: str, keys: Any) -> dict[str, Any]:
    """The claims of an id token that was made by this provider, for this server and this attempt."""
    token = jwt.decode(id_token, KeySet.import_key_set(keys), algorithms=_ALGORITHMS)
    claims: dict[str, Any] = token.claims
    jwt.JWTClaimsRegistry(
        leeway=_CLOCK_SKEW_SECONDS,
        iss={"essential": True, "value": provider.issuer or ""},
        aud={"essential": True, "value": provider.client_id},
        nonce={"essential": True, "value": attempt.nonce},
        sub={"essential": True},
        exp={"essential": True},
        iat={"essential": True},
    ).validate(claims)
    # Among several audiences, the authorized party is the one that asked.
    if isinstance(claims["aud"], list) and len(claims["aud"]) > 1 and claims.get("azp") != provider.client_id:
        raise OAuthFailed("oauth_failed")
    return claims


def _read_profile(provider: Provider, profile: Mapping[str, Any], emails: Any) -> Profile:
    if provider.name == "github":
        confirmed = [entry["email"] for entry in emails if entry["primary"] and entry["verified"]]
        account_id = str(profile["id"])
    else:
        confirmed = [profile["email"]] if profile.get("email_verified") is True else []
        account_id = str(profile["sub"])
    if provider.issuer is not None:
        # A subject is unique at its issuer only, and the operator may change the issuer.
        account_id = f"{provider.issuer} {account_id}"
    email = _EMAIL.validate_python(confirmed[0]) if confirmed else None
    # A name is one line of printable characters here.
    name = "".join(
        character for character in str(profile.get("name") or "") if character.isprintable()
    ).strip()
    picture = profile.get("avatar_url" if provider.name == "github" else "picture")
    return Profile(
        account_id=account_id,
        email=email,
        name=(name or (email or "").partition("@")[0])[:120],
        picture=picture if isinstance(picture, str) and len(picture) <= _LONGEST_ADDRESS else None,
    )
