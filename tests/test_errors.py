"""Errors with a code, and how one process tells another of them."""

import pickle

import pytest

from gpubloom.errors import CodedError, InputError, code_of, error_line, is_code, read_error_line
from gpubloom.traincard.failure import error_fields
from gpubloom.traincard.lock import RunInUseError


def test_a_problem_is_read_from_the_line_that_was_printed() -> None:
    problem = InputError("data_empty", "a.txt is empty: name [another] file.")
    assert isinstance(problem, ValueError)
    found = read_error_line(problem.lines[0] + "\n")
    assert (found.code, str(found)) == (problem.code, str(problem))


@pytest.mark.parametrize("line", ["Killed", "error: no code", "error[Not A Code]: x", ""])
def test_any_other_line_is_a_sentence_without_a_code_of_its_own(line: str) -> None:
    found = read_error_line(line)
    assert (found.code, str(found)) == ("failed", line)


def test_a_problem_keeps_its_code_when_it_goes_to_another_process() -> None:
    found = pickle.loads(pickle.dumps(InputError("data_empty", "a.txt is empty.")))
    assert (type(found), found.code, str(found)) == (InputError, "data_empty", "a.txt is empty.")


def test_exceptions_of_others_have_no_code_of_their_own() -> None:
    assert code_of(OSError("gone")) == "failed"
    # An exit status is none.
    assert code_of(SystemExit(2)) == "failed"


@pytest.mark.parametrize(
    ("value", "expected"),
    [("data_empty", True), ("a" * 64, True), ("a" * 65, False), ("A", False), (3, False)],
)
def test_what_has_the_form_of_a_code(value: object, expected: bool) -> None:
    assert is_code(value) is expected


def test_the_run_records_the_code_of_our_own_errors_only() -> None:
    assert error_fields(InputError("data_empty", "x"))["code"] == "data_empty"
    assert "code" not in error_fields(ValueError("x"))


def test_a_class_may_have_one_code_for_all() -> None:
    assert issubclass(RunInUseError, CodedError)
    assert RunInUseError.code == "run_in_use"
    assert error_line(RunInUseError.code, "x") == "error[run_in_use]: x"
