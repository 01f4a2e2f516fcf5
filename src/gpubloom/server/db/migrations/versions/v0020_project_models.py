"""Projects without a model: those that hold scripts and playgrounds have no architecture and no size.

Until here such projects had invented values, known by the names that the server gave them.
"""

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0019"
branch_labels = None
depends_on = None

_PROJECTS = sa.table(
    "projects",
    sa.column("name", sa.String()),
    sa.column("description", sa.String()),
    sa.column("model_architecture", sa.String(length=32)),
    sa.column("model_size", sa.Double()),
)
_MADE_BY_THE_SERVER = {
    "Scripts": "Script jobs.",
    "Playground": "Playgrounds of models that were not trained here.",
}


def upgrade() -> None:
    with op.batch_alter_table("projects") as table:
        table.alter_column("model_architecture", existing_type=sa.String(length=32), nullable=True)
        table.alter_column("model_size", existing_type=sa.Double(), nullable=True)
    for name, description in _MADE_BY_THE_SERVER.items():
        made = (_PROJECTS.c.name == name) & (_PROJECTS.c.description == description)
        op.execute(_PROJECTS.update().where(made).values(model_architecture=None, model_size=None))


def downgrade() -> None:
    op.execute("UPDATE projects SET model_architecture = 'custom' WHERE model_architecture IS NULL")
    op.execute("UPDATE projects SET model_size = 1.0 WHERE model_size IS NULL")
    with op.batch_alter_table("projects") as table:
        table.alter_column("model_architecture", existing_type=sa.String(length=32), nullable=False)
        table.alter_column("model_size", existing_type=sa.Double(), nullable=False)
