"""Names use the field's terms: the invented words of the first versions do not come back.

Identifiers and names of files and folders are checked; prose is not. A word of `WORDS` may not be part of any
name. A word of `WHOLE_NAMES` is ordinary English, so only a name that consists of it alone is an error.
"""

import io
import re
import subprocess
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
WORDS = frozenset(
    [
        "parcel",
        "courier",
        "packer",
        "obedience",
        "obey",
        "luggage",
        "travelling",
        "departure",
        "whereabouts",
        "seat",
        "crew",
        "companion",
        "conductor",
        "keeper",
        "fruitless",
        "overruled",
        "wish",
        "wished",
        "deaf",
        "patience",
        "elsewhere",
        "divided",
        "confined",
        "letter",
        "house",
        "steer",
        "rented_place",
        "place_kind",
        "offer_desk",
        "take_along",
        "first_boot",
        "lost_answer",
        "held_file",
        "whole_file",
        "numbers_on_disk",
        "slow_lane",
        "limit_of",
        "about_a_model",
        "give_back",
        "giving_way",
        "give_way",
        "stand_in",
    ]
)
WHOLE_NAMES = frozenset(
    [
        "Post",
        "Growth",
        "Away",
        "Refused",
        "Said",
        "Asked",
        "Found",
        "Turns",
        "Voices",
        "Speech",
        "Remembered",
        "Keeping",
        "Meeting",
        "Wall",
        "Place",
        "Places",
        "place",
        "places",
        "beside",
        "pace",
        "fold",
        "wall",
        "walls",
        "towers",
        "floors",
        "rooms",
    ]
)
ALLOWED = {
    # A key of start.json in the bucket: machines that already run were started with it.
    "obey": ("src/gpubloom/agent/remote/start.py", "src/gpubloom/agent/remote/uploader.py"),
    # The usual name for the number of evaluations that early stopping waits.
    "Patience": ("examples/plugins/src/bloom_example/callback.py",),
    # A name of Python's standard library.
    "ascii_letters": ("tests/providers/services/modal_service.py",),
}


def _files(*patterns: str) -> list[str]:
    listing = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", *patterns],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if listing.returncode != 0:
        pytest.skip("this is no git checkout, so there is no list of files")
    return [name for name in listing.stdout.splitlines() if (ROOT / name).is_file()]


def _has_old_word(name: str) -> bool:
    """Whether a word of `WORDS` is part of this name, in snake_case, camelCase or kebab-case."""
    parts = re.findall(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|[0-9]+", name)
    spelled = f"_{'_'.join(parts).lower()}_"
    return re.search(rf"_(?:{'|'.join(WORDS)})(?:e?s)?_", spelled) is not None


def _is_old(name: str) -> bool:
    return name == "SHOWN" or name.lstrip("_") in WHOLE_NAMES or _has_old_word(name)


def _python_names(file: str) -> Iterator[str]:
    text = (ROOT / file).read_text(encoding="utf-8")
    # To tell names from the words of strings and comments takes long.
    if not any(_is_old(word) for word in set(re.findall(r"\w+", text))):
        return
    with io.StringIO(text) as source:
        for token in tokenize.generate_tokens(source.readline):
            if token.type == tokenize.NAME:
                yield token.string


@pytest.mark.parametrize(
    ("name", "old"),
    [
        ("ParcelSender", True),
        ("_next_parcels", True),
        ("PATIENCE_SECONDS", True),
        ("test_a_run_with_a_divided_model", True),
        ("firstBootScript", True),
        ("place-kind", True),
        ("Place", True),
        ("_places", True),
        ("placement", False),
        ("in_place_update", False),
        ("undivided_attention", False),
        ("looked_up", False),
    ],
)
def test_old_words_are_recognised_in_every_spelling(name: str, old: bool) -> None:
    assert _is_old(name) == old


def test_no_python_identifier_has_an_old_name() -> None:
    found = {
        f"{file}: {name}"
        for file in _files("src/*.py", "tests/*.py", "bench/*.py", "tools/*.py", "examples/*.py")
        if "/migrations/versions/" not in file  # Revisions name tables and columns as they were.
        for name in set(_python_names(file))
        if _is_old(name) and file not in ALLOWED.get(name, ())
    }
    assert sorted(found) == []


def test_no_python_file_or_folder_has_an_old_name() -> None:
    paths = {part for file in _files() if not file.startswith("ui/") for part in Path(file).parts}
    assert sorted(part for part in paths if _is_old(part.split(".")[0])) == []


# Names of the web app only: `look` is also what a watcher does.
WHOLE_NAMES_OF_THE_UI = WHOLE_NAMES | {"look", "Look", "Fold"}


def test_no_name_of_the_web_app_is_an_old_one() -> None:
    """Identifiers by a regular expression: words outside strings, comments and the text of elements."""
    found = set()
    for file in _files("ui/src/*.ts", "ui/src/*.tsx"):
        if file.endswith("schema.d.ts"):  # Generated from the API description.
            continue
        found |= {f"{file} (its name)" for part in Path(file).parts if _is_old(part.split(".")[0])}
        text = (ROOT / file).read_text(encoding="utf-8")
        text = re.sub(
            r"/\*.*?\*/|//[^\n]*|\"[^\"\n]*\"|'[^'\n]*'|(?<=>)[^<>{}]*(?=<)", " ", text, flags=re.DOTALL
        )
        text = re.sub(r"`[^`]*`", lambda quoted: " ".join(re.findall(r"\$\{([^{}]*)\}", quoted[0])), text)
        found |= {
            f"{file}: {name}"
            for name in re.findall(r"[A-Za-z_$][\w$]*", text)
            if (name in WHOLE_NAMES_OF_THE_UI or _is_old(name))
        }
    assert sorted(found) == []
