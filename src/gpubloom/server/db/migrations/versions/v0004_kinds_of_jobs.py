"""Jobs of every kind: what a job is, its answer, and what it is about."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

# Column: what it refers to, and what becomes of the job when that is gone.
_REFERENCES = {
    "parent_id": ("training_jobs", "CASCADE"),
    "dataset_id": ("datasets", "SET NULL"),
    "model_id": ("models", "SET NULL"),
}


def upgrade() -> None:
    # SQLite cannot add a named reference to a table: it is copied there.
    with op.batch_alter_table("training_jobs") as table:
        table.add_column(sa.Column("kind", sa.String(length=24), nullable=False, server_default="train"))
        table.add_column(sa.Column("result", sa.JSON(), nullable=True))
        table.add_column(sa.Column("checkpoint_id", sa.Uuid(), nullable=True))
        for name, (referred, gone) in _REFERENCES.items():
            table.add_column(sa.Column(name, sa.Uuid(), nullable=True))
            table.create_foreign_key(_constraint(name), referred, [name], ["id"], ondelete=gone)
    for name in _REFERENCES:
        op.create_index(f"ix_training_jobs_{name}", "training_jobs", [name])
    op.create_index(
        "ix_training_jobs_user_id_kind_created_at", "training_jobs", ["user_id", "kind", "created_at"]
    )


def _constraint(name: str) -> str:
    return f"fk_training_jobs_{name}_{_REFERENCES[name][0]}"


def downgrade() -> None:
    op.drop_index("ix_training_jobs_user_id_kind_created_at", "training_jobs")
    for name in _REFERENCES:
        op.drop_index(f"ix_training_jobs_{name}", "training_jobs")
    # What older versions cannot know: they would take every row for a training.
    op.execute("DELETE FROM training_jobs WHERE kind <> 'train'")
    with op.batch_alter_table("training_jobs") as table:
        for name in _REFERENCES:
            table.drop_constraint(_constraint(name), type_="foreignkey")
        for name in (*_REFERENCES, "checkpoint_id", "result", "kind"):
            table.drop_column(name)
