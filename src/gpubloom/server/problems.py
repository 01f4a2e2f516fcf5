"""Errors that reach a client, all as `application/problem+json` (RFC 9457).

    Problem                       anything a client is told
    ├── InvalidInput         422  with one sentence per field
    ├── MalformedRequest     400
    ├── NotSignedIn          401
    ├── Forbidden            403
    ├── NotFound             404  also for what exists but belongs to somebody else
    ├── Conflict             409
    ├── Gone                 410
    ├── TooLarge             413
    └── TooManyRequests      429  carries Retry-After

`code` is stable and meant for programs; `detail` is a sentence that a person can act on. Of InvalidInput each
field has a code as well: pydantic's type of the mistake, or our own. All codes are listed in docs/errors.md.
"""

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any, ClassVar

import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gpubloom.plan.validation import problem_code, unknown_field_hint

log = structlog.get_logger("bloom")

MEDIA_TYPE = "application/problem+json"


class FieldError(BaseModel):
    """What is wrong with one field of the request."""

    field: str
    code: str
    message: str


class ProblemBody(BaseModel):
    """The body of every error response."""

    type: str = "about:blank"
    title: str
    status: int
    code: str
    detail: str
    errors: list[FieldError] = []


class Problem(Exception):
    """Base class of all errors that a client receives."""

    status: ClassVar[int] = 500
    code: str = "internal_error"

    def __init__(
        self,
        detail: str,
        *,
        code: str | None = None,
        errors: Sequence[FieldError] = (),
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(detail)
        self.detail = detail
        self.code = code or type(self).code
        self.errors = list(errors)
        self.headers = dict(headers or {})


class MalformedRequest(Problem):
    status, code = 400, "malformed_request"


class NotSignedIn(Problem):
    status, code = 401, "not_signed_in"

    def __init__(self, detail: str = "Sign in to continue.", *, code: str | None = None) -> None:
        super().__init__(detail, code=code, headers={"WWW-Authenticate": "Bearer"})


class Forbidden(Problem):
    status, code = 403, "forbidden"


class NotFound(Problem):
    status, code = 404, "not_found"


class Conflict(Problem):
    status, code = 409, "conflict"


class Gone(Problem):
    status, code = 410, "gone"


class TooLarge(Problem):
    status, code = 413, "too_large"


class InvalidInput(Problem):
    status, code = 422, "invalid_input"

    @classmethod
    def for_field(cls, field: str, message: str, *, code: str) -> "InvalidInput":
        """An error of one field. The code belongs to the field; the problem keeps its own code."""
        return cls(message, errors=[FieldError(field=field, code=code, message=message)])


class TooManyRequests(Problem):
    status, code = 429, "too_many_requests"

    def __init__(self, detail: str, *, retry_after: int, code: str | None = None) -> None:
        super().__init__(detail, code=code, headers={"Retry-After": str(retry_after)})


def problem_response(problem: Problem) -> JSONResponse:
    """The response that tells a client about a problem."""
    body = ProblemBody(
        title=HTTPStatus(problem.status).phrase,
        status=problem.status,
        code=problem.code,
        detail=problem.detail,
        errors=problem.errors,
    )
    return JSONResponse(
        body.model_dump(), status_code=problem.status, media_type=MEDIA_TYPE, headers=problem.headers
    )


# pydantic's words for the commonest mistakes, in a person's words.
_MESSAGES = {
    "missing": "This field is required.",
    "extra_forbidden": "This field is unknown. Remove it.",
    "string_too_short": "This field must not be empty.",
    "too_short": "This field must not be empty.",
    "json_invalid": "The request body is not valid JSON.",
}


# A client chooses the names of unknown fields and how many there are: the answer must not grow with them.
_MOST_ERRORS, _LONGEST_FIELD_NAME = 20, 100


def _field_name(location: Sequence[int | str]) -> str:
    parts = [str(part) for part in location if part not in {"body", "query", "path", "header"}]
    return ".".join(parts)[:_LONGEST_FIELD_NAME]


def _validation_problem(error: RequestValidationError) -> Problem:
    items: Sequence[dict[str, Any]] = error.errors()
    if any(item["type"] == "json_invalid" for item in items):
        return MalformedRequest("The request body is not valid JSON.", code="malformed_json")
    if any(item["loc"][:1] == ("path",) for item in items):
        # An id that cannot exist is simply not found.
        return NotFound("Nothing exists at this address. Check the URL.")
    return invalid_fields(items)


def invalid_fields(
    items: Sequence[Mapping[str, Any]], *, inside: str = "", model: type[BaseModel] | None = None
) -> InvalidInput:
    """pydantic's list of errors as sentences for users.

    `inside` names the field that contains them all; `model` knows which fields there are.
    """
    errors = []
    for item in items[:_MOST_ERRORS]:
        message = _MESSAGES.get(item["type"], str(item["msg"]).removeprefix("Value error, "))
        if item["type"] == "string_too_short" and item.get("ctx", {}).get("min_length", 1) > 1:
            message = f"Enter at least {item['ctx']['min_length']} characters."
        if item["type"] == "extra_forbidden" and model and (hint := unknown_field_hint(model, item["loc"])):
            message = f"This field is unknown. {hint}"
        # pydantic counts "items" of a text that a validator has changed.
        if item["type"] in {"string_too_long", "too_long"} and isinstance(item.get("input"), str):
            message = f"Enter at most {item['ctx']['max_length']} characters."
        field = ".".join(part for part in (inside, _field_name(item["loc"])) if part)
        errors.append(FieldError(field=field, code=problem_code(item), message=message))
    first = errors[0]
    detail = f"{first.field}: {first.message}" if first.field else first.message
    return InvalidInput(detail, errors=errors)


def _note_refusal(request: Request, error: Problem) -> None:
    """Log who was refused what. A thing of another person is not found, so these answers count as well."""
    asking = getattr(request.state, "principal", None)
    if error.status in {403, 429} or (error.status == 404 and asking is not None):
        log.info(
            "request refused",
            code=error.code,
            method=request.method,
            path=request.url.path,
            user=None if asking is None else str(asking.id),
            address=None if request.client is None else request.client.host,
        )


def install_problem_handlers(app: FastAPI) -> None:
    """Make every error of the app a problem document."""

    @app.exception_handler(Problem)
    async def _problem(request: Request, error: Problem) -> JSONResponse:
        _note_refusal(request, error)
        return problem_response(error)

    @app.exception_handler(RequestValidationError)
    async def _invalid(request: Request, error: RequestValidationError) -> JSONResponse:
        return problem_response(_validation_problem(error))

    @app.exception_handler(HTTPException)
    async def _http(request: Request, error: HTTPException) -> JSONResponse:
        status = error.status_code
        # The web app's pages are at every address: for other methods there is simply nothing.
        if status == 405 and not getattr(request.scope.get("route"), "include_in_schema", True):
            status = 404
        body = ProblemBody(
            title=HTTPStatus(status).phrase,
            status=status,
            code=HTTPStatus(status).name.lower(),
            detail=_HTTP_DETAILS.get(status, str(error.detail)),
        )
        headers = error.headers if status == error.status_code else None
        return JSONResponse(body.model_dump(), status_code=status, media_type=MEDIA_TYPE, headers=headers)


class UnexpectedErrors:
    """ASGI middleware: a bug is logged, and the client told no more than that there is one.

    Not an exception handler: those for everything run outside all middleware, and the answer would lack the
    security headers.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        answering = False

        async def watched(message: Message) -> None:
            nonlocal answering
            answering = True
            await send(message)

        try:
            await self.app(scope, receive, watched)
        except Exception:
            if answering:
                # Too late for another answer: the server cuts the connection and logs it.
                raise
            log.exception("request failed", method=scope["method"], path=scope["path"])
            problem = Problem(
                "The server failed because of an internal error. The error was logged. Try again."
            )
            await problem_response(problem)(scope, receive, send)


_HTTP_DETAILS = {
    400: "The server could not read the request.",
    404: "Nothing exists at this address. Check the URL.",
    405: "This address does not support this HTTP method.",
}
