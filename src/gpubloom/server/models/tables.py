"""The table of models that can be tuned or talked to."""

from typing import Any, Literal

from sqlalchemy import JSON, Index
from sqlalchemy.orm import Mapped, mapped_column

from gpubloom.server.db.base import Identified, Table
from gpubloom.server.storage.service import KeepsFiles

Status = Literal["fetching", "uploading", "ready", "failed"]
Source = Literal["hub", "folder", "upload"]


class Model(KeepsFiles, Identified, Table):
    """A model's folder, on its way or here."""

    __tablename__ = "models"
    __table_args__ = (Index(None, "user_id", "created_at"), Index(None, "status"))

    repository: Mapped[str | None]
    # As asked for; once fetched, the commit that it was.
    revision: Mapped[str | None]
    # Only of a folder that the operator allowed; the others lie where `files.py` says.
    path: Mapped[str | None]
    # Of an upload: the files that were announced, {path: size}.
    files: Mapped[dict[str, Any]] = mapped_column(default=dict)
    check: Mapped[dict[str, Any] | None] = mapped_column("check_report", JSON(none_as_null=True))
