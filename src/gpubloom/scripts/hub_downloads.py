"""What a script downloads from the Hugging Face Hub: the names in its calls of the libraries that do so."""

import re

from gpubloom.scripts.requirements import HubDataset
from gpubloom.scripts.script import Script

_MOST = 20
# As on the hub; a path such as ./model or /data is none.
_NAME = re.compile(r"[A-Za-z0-9][\w.-]*(?:/[A-Za-z0-9][\w.-]*)?", re.ASCII)
_LONGEST = 200
_FORMATS = {"json", "csv", "text", "parquet", "imagefolder", "audiofolder", "arrow", "webdataset"}
# The first argument is a model, or the argument of this name.
_LOADERS = {
    "from_pretrained": "pretrained_model_name_or_path",
    "snapshot_download": "repo_id",
    "SentenceTransformer": "model_name_or_path",
    "LLM": "model",
    "SFTTrainer": "model",
    "DPOTrainer": "model",
    "GRPOTrainer": "model",
}


def hub_models(script: Script) -> tuple[str, ...]:
    found: dict[str, None] = {}
    for call in script.calls(*_LOADERS):
        known = script.keyword(call, _LOADERS[call.tail], position=0)
        if known is not None and isinstance(known.value, str) and _is_name(known.value):
            found.setdefault(known.value)
    for call in script.calls("pipeline"):
        known = script.keyword(call, "model", position=1)
        if known is not None and isinstance(known.value, str) and _is_name(known.value):
            found.setdefault(known.value)
    # A folder of the job is no repository.
    return tuple(name for name in found if not _is_folder(script, name))[:_MOST]


def hub_datasets(script: Script) -> tuple[HubDataset, ...]:
    found: dict[HubDataset, None] = {}
    for call in script.calls("load_dataset"):
        name = script.keyword(call, "path", position=0)
        if name is None or not isinstance(name.value, str) or not _is_name(name.value):
            continue
        # A streamed dataset is not stored; another revision is another dataset.
        if name.value in _FORMATS or any(
            script.has_keyword(call, word) for word in ("streaming", "revision", "data_files", "data_dir")
        ):
            continue
        config = script.keyword(call, "name", position=1)
        if config is None and (script.has_keyword(call, "name") or len(call.node.args) > 1):
            continue
        if config is None or config.value is None:
            found.setdefault(HubDataset(name=name.value))
        elif isinstance(config.value, str) and _is_name(config.value):
            found.setdefault(HubDataset(name=name.value, config=config.value))
    return tuple(each for each in found if not _is_folder(script, each.name))[:_MOST]


def _is_name(value: str) -> bool:
    return len(value) <= _LONGEST and _NAME.fullmatch(value) is not None and ".." not in value


def _is_folder(script: Script, name: str) -> bool:
    files = [facts.source.name or "" for facts in script.files] + list(script.other_files)
    return any(file == name or file.startswith(f"{name}/") for file in files)
