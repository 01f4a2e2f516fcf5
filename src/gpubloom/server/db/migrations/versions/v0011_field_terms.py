"""Columns of jobs under the field's terms: the offer that was taken, attempts without progress."""

from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None

_RENAMED = {"place": "offer", "fruitless_attempts": "attempts_without_progress"}


def upgrade() -> None:
    for old, new in _RENAMED.items():
        op.execute(f"ALTER TABLE training_jobs RENAME COLUMN {old} TO {new}")


def downgrade() -> None:
    for old, new in _RENAMED.items():
        op.execute(f"ALTER TABLE training_jobs RENAME COLUMN {new} TO {old}")
