"""All routes of the app, as the app itself matches them."""

from dataclasses import dataclass

from fastapi import FastAPI
from fastapi.routing import iter_route_contexts
from starlette.routing import Mount, WebSocketRoute

# What answers without authentication. Adding a line here is a decision about the whole product.
PUBLIC = {
    ("GET", "/api/openapi.json"),
    ("GET", "/api/health"),
    ("GET", "/api/auth/state"),
    ("POST", "/api/auth/setup"),
    ("POST", "/api/auth/sign-up"),
    ("POST", "/api/auth/verify"),
    ("POST", "/api/auth/verify/resend"),
    ("POST", "/api/auth/sign-in"),
    # The second step of a sign-in asks for a cookie of the first one.
    ("GET", "/api/auth/second-factor"),
    ("POST", "/api/auth/second-factor"),
    ("POST", "/api/auth/passkey/options"),
    ("POST", "/api/auth/passkey"),
    ("POST", "/api/auth/password/forgot"),
    ("POST", "/api/auth/password/reset"),
    ("POST", "/api/auth/password/strength"),
    ("GET", "/api/auth/oauth/{provider}/start"),
    ("GET", "/api/auth/oauth/{provider}/callback"),
    # A share link's secret is asked for in a header.
    ("GET", "/api/shared/job"),
    ("GET", "/api/shared/metrics"),
    # Rented machines: the address is signed, for one file and one time.
    ("GET", "/api/run-files/{path:path}"),
    ("PUT", "/api/run-files/{path:path}"),
    # The web app's files, the same for everybody.
    ("GET", "/{path:path}"),
}


@dataclass(frozen=True)
class Address:
    """One method on one path; WEBSOCKET stands for an upgrade."""

    method: str
    path: str


def addresses(app: FastAPI) -> list[Address]:
    """Every method on every path, mounts of static files left out."""
    found = []
    for context in iter_route_contexts(app.routes):
        if isinstance(context.original_route, Mount):
            assert context.path == "/assets", f"{context.path} is mounted: what guards it?"
            continue
        if isinstance(context.original_route, WebSocketRoute):
            found.append(Address("WEBSOCKET", context.path))
            continue
        # A GET brings its HEAD along; one that stands alone is a route of its own.
        methods = sorted(context.methods - {"HEAD"}) or ["HEAD"]
        found += [Address(method, context.path) for method in methods]
    return found
