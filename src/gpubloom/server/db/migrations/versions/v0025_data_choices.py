"""The dataset that a job is evaluated on."""

import sqlalchemy as sa
from alembic import op

revision = "0025"
down_revision = "0024"
branch_labels = None
depends_on = None


_CONSTRAINT = "fk_training_jobs_eval_dataset_id_datasets"
_INDEX = "ix_training_jobs_eval_dataset_id"


def upgrade() -> None:
    # SQLite cannot add a named reference to a table: it is copied there.
    with op.batch_alter_table("training_jobs") as table:
        table.add_column(sa.Column("eval_dataset_id", sa.Uuid(), nullable=True))
        table.create_foreign_key(_CONSTRAINT, "datasets", ["eval_dataset_id"], ["id"], ondelete="SET NULL")
    op.create_index(_INDEX, "training_jobs", ["eval_dataset_id"])


def downgrade() -> None:
    op.drop_index(_INDEX, "training_jobs")
    with op.batch_alter_table("training_jobs") as table:
        table.drop_constraint(_CONSTRAINT, type_="foreignkey")
        table.drop_column("eval_dataset_id")
