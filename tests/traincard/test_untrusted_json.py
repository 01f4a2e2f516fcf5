"""JSON of strangers: whatever is wrong with it is one error with a code, and never a traceback."""

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpubloom.traincard.untrusted_json import MOST_DEPTH, UntrustedJsonError, parse_untrusted

MOST = 1 << 20

_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(_values)
def test_what_is_json_is_read_as_python_reads_it(value: Any) -> None:
    assert parse_untrusted(json.dumps(value), most_bytes=MOST) == value
    assert parse_untrusted(json.dumps(value, ensure_ascii=False), most_bytes=MOST) == value


@given(st.binary(max_size=200) | st.text(max_size=200))
def test_anything_else_is_one_kind_of_error(content: bytes | str) -> None:
    with contextlib.suppress(UntrustedJsonError):
        parse_untrusted(content, most_bytes=MOST)


@pytest.mark.parametrize(
    "content",
    [
        *(b"[" * 300_000, b"[" * 300_000 + b"]" * 300_000, b'{"a":' * 100_000 + b"1" + b"}" * 100_000),
        *(b"NaN", b"[Infinity]", b'{"a": -Infinity}', b"1e999", b"[-1e999]", b"1" * 5_000),
        *(b"", b"{", b"[1,]", b"\xff", b'"\xed\xa0\x80"', b"\xef\xbb\xbf{}", b"[" * 65 + b"]" * 65),
    ],
)
def test_what_is_not_plain_json_is_refused(content: bytes) -> None:
    with pytest.raises(UntrustedJsonError):
        parse_untrusted(content, most_bytes=MOST)


def test_brackets_in_texts_nest_nothing() -> None:
    text = '[" ' + "[{" * 500 + '\\"[[' + '"]'
    assert parse_untrusted(text, most_bytes=MOST) == json.loads(text)
    deepest = b"[" * MOST_DEPTH + b"]" * MOST_DEPTH
    assert parse_untrusted(deepest, most_bytes=MOST) == json.loads(deepest)


def test_what_is_too_large_is_not_parsed() -> None:
    with pytest.raises(UntrustedJsonError, match="larger"):
        parse_untrusted(b" " * 10 + b"1", most_bytes=10)


def test_nan_is_read_where_older_programs_wrote_it() -> None:
    assert str(parse_untrusted("[NaN]", most_bytes=MOST, finite=False)) == "[nan]"


def test_a_string_without_an_end_is_read_once() -> None:
    # Looked at from each of its quotes, it takes hours.
    with pytest.raises(UntrustedJsonError):
        parse_untrusted(b"[" * (MOST_DEPTH + 1) + b'"' + b'\\"' * 400_000, most_bytes=MOST)
