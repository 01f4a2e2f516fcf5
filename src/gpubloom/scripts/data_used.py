"""Which datasets a script names, and how large the well-known ones are."""

from collections.abc import Iterator

from gpubloom.scripts.requirements import Detected
from gpubloom.scripts.script import Script, detected
from gpubloom.scripts.values import Known

_SETTINGS = ("dataset", "dataset_name", "dataset_id", "data_path", "train_file", "data_file", "DATASET")
_DOWNLOADS = {
    "get",
    "urlretrieve",
    "urlopen",
    "download",
    "read_csv",
    "get_file",
    "load_files",
    "read_parquet",
}
_LONGEST = 300
_MOST = 20

# Examples of the training split, as their publishers state them.
EXAMPLES = {
    "mnist": 60_000, "fashionmnist": 60_000, "fashion_mnist": 60_000, "cifar10": 50_000, "cifar100": 50_000,
    "imagenet": 1_281_167, "imagenet-1k": 1_281_167, "imdb": 25_000, "glue": 67_349, "squad": 87_599,
    "ag_news": 120_000, "alpaca": 52_002, "alpaca-cleaned": 51_760, "databricks-dolly-15k": 15_011,
    "openassistant-guanaco": 9_846, "guanaco-llama2-1k": 1_000, "food101": 75_750, "samsum": 14_732,
    "oxford_iiit_pet": 3_680, "yelp_review_full": 650_000, "boolq": 9_427, "tatsu-lab/alpaca": 52_002,
    "gsm8k": 7_473, "ultrachat_200k": 207_865, "beans": 1_034,
}  # fmt: skip
# Tokens of the training split.
TOKENS = {
    "shakespeare_char": 1_003_854, "shakespeare": 301_966, "tinyshakespeare": 1_003_854,
    "openwebtext": 9_035_582_198, "wikitext-2-raw-v1": 2_400_000, "wikitext-103-raw-v1": 118_000_000,
    "wikitext-2-v1": 2_400_000, "wikitext": 2_400_000, "tinystories": 470_000_000,
}  # fmt: skip


def datasets(script: Script) -> tuple[Detected[str], ...]:
    found: dict[str, Detected[str]] = {}
    for known in _named(script):
        if isinstance(known.value, str) and 0 < len(known.value) <= _LONGEST and len(found) < _MOST:
            found.setdefault(known.value, detected(known))
    return tuple(found.values())


def examples_of(found: tuple[Detected[str], ...]) -> tuple[int, Detected[str]] | None:
    """How many training examples there are, where a dataset is well known."""
    return _looked_up(found, EXAMPLES)


def tokens_of(found: tuple[Detected[str], ...]) -> tuple[int, Detected[str]] | None:
    return _looked_up(found, TOKENS)


def _looked_up(found: tuple[Detected[str], ...], table: dict[str, int]) -> tuple[int, Detected[str]] | None:
    for dataset in found:
        name = dataset.value.casefold().rstrip("/")
        for candidate in (name, name.rpartition("/")[2], name.rpartition(".")[2]):
            if candidate in table:
                return table[candidate], dataset
    return None


def _named(script: Script) -> Iterator[Known]:
    for call in script.calls("load_dataset", "load_from_disk"):
        first = script.keyword(call, "path", position=0)
        files = script.keyword(call, "data_files")
        if first is not None and isinstance(first.value, str):
            if first.value in {"json", "csv", "text", "parquet"} and files is not None:
                yield files
                continue
            second = script.keyword(call, "name", position=1)
            if second is not None and isinstance(second.value, str) and first.value == "wikitext":
                yield Known(f"wikitext/{second.value}", first.evidence, first.sure)
            else:
                yield first
    for call in script.calls_of("torchvision.datasets.", "torchtext.datasets.", "torchaudio.datasets."):
        yield Known(call.tail, script.evidence(call))
    for call in script.calls("load_data"):
        owner = call.name.rpartition(".")[0].rpartition(".")[2]
        if owner:
            yield Known(owner, script.evidence(call))
    for call in script.calls_of("sklearn.datasets.load_", "sklearn.datasets.fetch_"):
        yield Known(call.tail.removeprefix("load_").removeprefix("fetch_"), script.evidence(call))
    for call in script.calls_of("tensorflow_datasets.load", "tfds.load"):
        if (known := script.keyword(call, "name", position=0)) is not None:
            yield known
    yield from _from_settings(script)
    yield from _downloaded(script)


def _from_settings(script: Script) -> Iterator[Known]:
    for name in _SETTINGS:
        known = script.values.setting(name)
        if known is not None and isinstance(known.value, str):
            yield known


def _downloaded(script: Script) -> Iterator[Known]:
    for call in script.calls(*_DOWNLOADS):
        known = script.keyword(call, "url", "origin", position=0)
        if known is None and call.tail == "get_file":
            known = script.keyword(call, "origin", position=1)
        if known is not None and isinstance(known.value, str) and _is_data(known.value, call.tail):
            yield known
    for command in script.commands:
        if command.words[0] in {"wget", "curl"}:
            for word in command.words[1:]:
                if word.startswith(("http://", "https://")):
                    yield Known(word, (command.evidence,))


def _is_data(value: str, tail: str) -> bool:
    return value.startswith(("http://", "https://", "s3://", "gs://")) or tail in {"read_csv", "read_parquet"}
