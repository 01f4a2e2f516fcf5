"""The image of a Modal sandbox: Python, the job's packages, and what the job would download first.

Modal keeps layers by their content: the same packages and the same models are fetched once, whoever asks.
Models, datasets and files each get a layer of their own, so that a change of one fetches only that one.
Downloads run where the image is built, without a GPU and without its price.
"""

import shlex
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from gpubloom.agent.remote.start import FILES_VARIABLE
from gpubloom.providers.cloud import Prefetch

if TYPE_CHECKING:
    import modal

_PYTHONS = ((3, 11), (3, 12), (3, 13))
_FOLDER = "/opt/gpubloom"

# One line each, without single quotes: they stand in a RUN command. Weights in old formats are left out
# where there are safetensors, which are what loaders take first.
_FETCH_MODEL = (
    "import sys; from huggingface_hub import HfApi, snapshot_download; name = sys.argv[1]; "
    "files = [file.rfilename for file in HfApi().model_info(name).siblings]; "
    "new = any(file.endswith('.safetensors') for file in files); "
    "skip = ['*.onnx', '*.msgpack', '*.h5', '*.ot', '*.gguf', 'original/*'] + ['*.bin', '*.pth'] * new; "
    "snapshot_download(name, ignore_patterns=skip)"
).replace("'", '"')
_FETCH_DATASET = "import sys, datasets; datasets.load_dataset(*sys.argv[1:])"
# Under the name of its content, as the agent looks for it.
_FETCH_FILE = (
    "import hashlib, os, sys, urllib.request; folder = sys.argv[2]; os.makedirs(folder, exist_ok=True); "
    "part = folder + '/part'; urllib.request.urlretrieve(sys.argv[1], part); "
    "name = hashlib.file_digest(open(part, 'rb'), 'sha256').hexdigest(); os.rename(part, folder + '/' + name)"
).replace("'", '"')


def job_image(packages: tuple[str, ...], prefetch: Prefetch, secrets: "list[modal.Secret]") -> "modal.Image":
    """`secrets` are what downloads may need, such as HF_TOKEN; they are in no layer and in no command."""
    import modal

    here = min(max(sys.version_info[:2], _PYTHONS[0]), _PYTHONS[-1])
    image = modal.Image.debian_slim(python_version=f"{here[0]}.{here[1]}")
    if packages:
        image = image.pip_install(*packages)
    if not prefetch:
        return image
    if needed := list(_packages_of(prefetch)):
        image = image.pip_install(*needed)
    image = image.env({"HF_HOME": f"{_FOLDER}/huggingface", FILES_VARIABLE: f"{_FOLDER}/files"})
    for command in fetch_commands(prefetch):
        image = image.run_commands(command, secrets=secrets)
    return image


def _packages_of(prefetch: Prefetch) -> Iterator[str]:
    """Where the job's own packages bring these, pip finds nothing to do."""
    if prefetch.models:
        yield "huggingface_hub"
    if prefetch.datasets:
        yield "datasets"


def fetch_commands(prefetch: Prefetch) -> Iterator[str]:
    """Shell commands, one download each."""
    for address in prefetch.addresses:
        yield shlex.join(["python", "-c", _FETCH_FILE, address, f"{_FOLDER}/files"])
    for dataset in prefetch.datasets:
        yield shlex.join(["python", "-c", _FETCH_DATASET, *dataset])
    for model in prefetch.models:
        yield shlex.join(["python", "-c", _FETCH_MODEL, model])
