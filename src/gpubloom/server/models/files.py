"""Where a model is stored: in a folder that the server named, or in one that the operator allowed."""

import shutil
from pathlib import Path
from uuid import UUID

from gpubloom.server.models.tables import Model
from gpubloom.server.projects.data_paths import DataPathRefused, check_data_files, check_data_path
from gpubloom.server.settings import Settings
from gpubloom.server.storage.uploads import Arriving


def models_folder(settings: Settings) -> Path:
    """The folder of all models that people brought; outside of what a data path may name."""
    return settings.home / "models"


def own_folder(settings: Settings, model_id: UUID) -> Path:
    return models_folder(settings) / str(model_id)


def fetching_folder(settings: Settings, model_id: UUID) -> Path:
    """Where a model lies while it is downloaded, apart from all others."""
    return models_folder(settings) / f".fetching-{model_id}"


def model_folder(settings: Settings, model: Model) -> Path:
    """The folder that is loaded. Of one outside, it is looked again where it leads now."""
    if model.path is None:
        return own_folder(settings, model.id)
    return allowed_folder(model.path, settings)


def allowed_folder(path: str, settings: Settings) -> Path:
    """A folder that the operator allowed; DataPathRefused says why another is not."""
    if "://" in path:
        raise DataPathRefused(
            "path_not_local",
            "This is a URL, not a folder. To add a model from the Hugging Face Hub, enter its id.",
        )
    checked = check_data_path(path, settings)
    folder = Path(checked).expanduser() if checked.startswith("/") else settings.uploads / checked
    if not folder.is_dir():
        raise DataPathRefused("folder_not_found", "This folder does not exist on the server.")
    # A link inside may lead elsewhere, and would be loaded as well.
    check_data_files(folder.iterdir(), settings)
    return folder.resolve()


def arriving_file(settings: Settings, model: Model, name: str) -> Arriving:
    """One announced file; the name was checked when it was announced."""
    return Arriving(own_folder(settings, model.id) / name, int(model.files[name]))


def received_bytes(settings: Settings, model: Model) -> int:
    """How much of an upload is here."""
    return sum(arriving_file(settings, model, name).received() for name in model.files)


def is_whole(settings: Settings, model: Model) -> bool:
    return all(arriving_file(settings, model, name).is_whole for name in model.files)


def remove_model(settings: Settings, model_id: UUID) -> None:
    """Remove a model's own files; folders of others are never touched."""
    shutil.rmtree(own_folder(settings, model_id), ignore_errors=True)
    for unfinished in models_folder(settings).glob(f".fetching-{model_id}*"):
        if unfinished.is_dir():
            shutil.rmtree(unfinished, ignore_errors=True)
        else:
            unfinished.unlink(missing_ok=True)
