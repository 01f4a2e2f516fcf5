"""What a handler can ask the app for, besides the database: its settings and its mailer."""

from typing import Annotated, cast

from fastapi import Depends, Request

from gpubloom.server.accounts.mail import Mailer
from gpubloom.server.settings import Settings


def _settings_of(request: Request) -> Settings:
    return cast("Settings", request.app.state.settings)


def _mailer_of(request: Request) -> Mailer:
    return cast("Mailer", request.app.state.mailer)


CurrentSettings = Annotated[Settings, Depends(_settings_of)]
CurrentMailer = Annotated[Mailer, Depends(_mailer_of)]
