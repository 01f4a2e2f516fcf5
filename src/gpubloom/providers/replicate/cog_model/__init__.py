"""The Cog model that a person pushes to Replicate once: its train() becomes the agent of any job."""

from importlib.resources import files

# What scripts usually need; anything else is installed when a job starts, while the clock runs.
_PACKAGES = ("torch", "numpy")


def model_files(packages: tuple[str, ...] = _PACKAGES) -> dict[str, str]:
    """Texts by file name, for `cog push`."""
    folder = files("gpubloom.providers.replicate.cog_model")
    return {
        "cog.yaml": (folder / "cog.yaml").read_text(encoding="utf-8"),
        "requirements.txt": "".join(f"{package}\n" for package in packages),
        "train.py": (folder / "cog_train.py").read_text(encoding="utf-8"),
    }
