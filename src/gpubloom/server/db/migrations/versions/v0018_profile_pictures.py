"""Profile pictures."""

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "profile_pictures",
        sa.Column("user_id", sa.Uuid(), nullable=False),
        sa.Column("content", sa.LargeBinary(), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["user_id"], ["users.id"], name="fk_profile_pictures_user_id_users", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("user_id", name="pk_profile_pictures"),
    )


def downgrade() -> None:
    op.drop_table("profile_pictures")
    # Addresses of pictures that are gone.
    users = sa.table("users", sa.column("image", sa.String()))
    op.execute(sa.update(users).where(users.c.image.like("/api/users/%")).values(image=None))
