"""The HTTP route of a person's storage: how much of their quota is used, and for what."""

from fastapi import APIRouter

from gpubloom.server.accounts.principal import CurrentPrincipal, CurrentSettings
from gpubloom.server.db.database import ReadSession
from gpubloom.server.schema import Schema
from gpubloom.server.storage.service import GIGABYTE, read_usage

router = APIRouter(tags=["accounts"])


class StorageOut(Schema):
    """Bytes by kind. The files of jobs are measured about once a minute while the jobs run."""

    quota: int
    total: int
    datasets: int
    models: int
    runs: int
    checkpoints: int
    trained_models: int


@router.get("/me/storage")
async def read_storage(
    principal: CurrentPrincipal, session: ReadSession, settings: CurrentSettings
) -> StorageOut:
    """Return how much your files take, and how much they may take together."""
    usage = await read_usage(session, principal.id)
    return StorageOut(quota=int(settings.user_quota_gb * GIGABYTE), total=usage.total, **vars(usage))
