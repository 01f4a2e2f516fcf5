"""The table of datasets."""

from typing import Any, Literal

from sqlalchemy import JSON, Index, String
from sqlalchemy.orm import Mapped, mapped_column

from gpubloom.server.db.base import Identified, Table
from gpubloom.server.storage.service import KeepsFiles

Status = Literal["uploading", "fetching", "parsing", "generating", "inspecting", "ready", "failed"]
Source = Literal["upload", "hub", "documents", "questions"]


class Dataset(KeepsFiles, Identified, Table):
    """A file of examples, on its way or here. `docs/datasets.md` says what becomes of it."""

    __tablename__ = "datasets"
    __table_args__ = (Index(None, "user_id", "created_at"), Index(None, "status"))

    # As its owner calls it; where it lies is the server's own choice (`files.py`).
    filename: Mapped[str]
    # What a person says about the file, in place of what would be guessed.
    format: Mapped[str | None] = mapped_column(String(32))
    columns: Mapped[dict[str, Any]] = mapped_column(default=dict)
    encoding: Mapped[str | None] = mapped_column(String(16))
    # Where a hub has it: repository, config, split, revision.
    origin: Mapped[dict[str, Any]] = mapped_column(default=dict)
    report: Mapped[dict[str, Any] | None] = mapped_column(JSON(none_as_null=True))
    # Documents that were cut to passages: how, and what came of it (`DocumentsOut`).
    documents: Mapped[dict[str, Any] | None] = mapped_column(JSON(none_as_null=True))
    # Questions that a model writes about passages: the order, and how far it is (`QuestionsOut`).
    questions: Mapped[dict[str, Any] | None] = mapped_column(JSON(none_as_null=True))
