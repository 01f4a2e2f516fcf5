"""What a script prints and logs is in its run, once, without secrets; its terminal is as before."""

import io
import json
import subprocess
import sys
from pathlib import Path

import pytest
from tqdm import tqdm

from gpubloom.traincard import Reporter, read_all
from gpubloom.traincard.capture import OutputLines
from gpubloom.traincard.redaction import HIDDEN, redact, redact_arguments, redact_config
from tests.traincard.conftest import StartScript, events_of


def lines_of(run_dir: Path) -> list[tuple[str, str, str]]:
    found = [event.fields for event in events_of(run_dir, "log")]
    return [(fields["source"], fields["level"], fields["line"]) for fields in found]


SCRIPT = """
    import logging, sys
    logging.basicConfig(format="%(levelname)s %(message)s")
    from gpubloom.traincard import Reporter
    reporter = Reporter(telemetry_seconds=0)
    print("epoch", 1)
    print("to stderr", file=sys.stderr)
    logging.getLogger("data").warning("%d rows skipped", 3)
    for step in range(50):
        sys.stderr.write(f"\\r{step}%")
    sys.stderr.write("\\n")
    print("\\x1b[31mred\\x1b[0m")
    print("no end of line", end="")
"""


def test_output_and_logging_of_a_plain_script_are_in_its_run_once(
    start_script: StartScript, run_dir: Path
) -> None:
    process = start_script(SCRIPT)
    output, errors = process.communicate()
    assert process.returncode == 0
    assert output == "epoch 1\n\x1b[31mred\x1b[0m\nno end of line"
    assert errors.startswith("to stderr\nWARNING 3 rows skipped\n")
    assert lines_of(run_dir) == [
        ("stdout", "info", "epoch 1"),
        ("stderr", "info", "to stderr"),
        ("logging", "warning", "data: 3 rows skipped"),
        ("stderr", "info", "49%"),
        ("stdout", "info", "red"),
        ("stdout", "info", "no end of line"),
    ]


def test_the_traceback_of_a_script_that_fails_is_among_its_lines(
    start_script: StartScript, run_dir: Path
) -> None:
    process = start_script("""
        from gpubloom.traincard import Reporter
        reporter = Reporter(telemetry_seconds=0)
        raise ValueError("the end")
    """)
    assert "ValueError: the end" in process.communicate()[1]
    assert ("stderr", "info", "ValueError: the end") in lines_of(run_dir)


def test_basic_config_works_after_a_reporter_was_made(start_script: StartScript, run_dir: Path) -> None:
    process = start_script("""
        import logging
        from gpubloom.traincard import Reporter
        reporter = Reporter(telemetry_seconds=0)
        logging.warning("before")
        logging.basicConfig(level=logging.INFO, format="mine %(message)s", force=True)
        logging.info("after")
        reporter.close()
        logging.info("closed")
    """)
    _, errors = process.communicate()
    assert errors == "WARNING:root:before\nmine after\nmine closed\n"
    assert [line for _, _, line in lines_of(run_dir)] == ["before", "after"]


def test_nothing_is_captured_where_an_agent_keeps_the_output(
    start_script: StartScript, run_dir: Path
) -> None:
    start_script(SCRIPT, BLOOM_JOB_ID="00000000-0000-0000-0000-000000000000").communicate()
    assert lines_of(run_dir) == []
    start_script(SCRIPT, BLOOM_CAPTURE="off").communicate()
    assert lines_of(run_dir) == []


def test_nothing_is_captured_when_the_output_goes_to_the_log_of_the_run(run_dir: Path) -> None:
    log = run_dir / "logs" / "output.log"
    log.parent.mkdir(parents=True)
    code = "from gpubloom.traincard import Reporter\nr = Reporter()\nprint('once')\nr.close()"
    with log.open("wb") as output:
        environment = {"BLOOM_RUN_DIR": str(run_dir), "BLOOM_ANNOUNCE": "off", "PATH": ""}
        subprocess.run([sys.executable, "-c", code], check=True, stdout=output, env=environment)
    assert log.read_text() == "once\n"
    assert lines_of(run_dir) == []


def test_one_line_says_where_the_run_is_and_none_in_a_job(start_script: StartScript, run_dir: Path) -> None:
    code = "from gpubloom.traincard import Reporter\nReporter(telemetry_seconds=0).close()"
    said = start_script(code, BLOOM_ANNOUNCE="").communicate()[1]
    assert said == f"TrainCard: this run is recorded in run. See it live: bloom runs watch {run_dir.name}\n"
    job = start_script(code, BLOOM_ANNOUNCE="", BLOOM_JOB_ID="00000000-0000-0000-0000-000000000000")
    assert job.communicate()[1] == ""
    assert start_script(code, BLOOM_ANNOUNCE="off").communicate()[1] == ""


def test_no_line_says_where_the_run_is_while_it_cannot_be_written(
    start_script: StartScript, run_dir: Path
) -> None:
    run_dir.write_text("a file, not a folder")
    code = "from gpubloom.traincard import Reporter\nReporter(telemetry_seconds=0).close()"
    said = start_script(code, BLOOM_ANNOUNCE="").communicate()[1]
    assert "TrainCard cannot write to" in said
    assert "is recorded in" not in said


def test_secrets_are_hidden_wherever_they_are_printed(start_script: StartScript, run_dir: Path) -> None:
    token = "hf_" + "a1B2" * 9
    process = start_script(
        """
        import os, sys
        from gpubloom.traincard import Reporter
        with Reporter(telemetry_seconds=0):
            print("login with", sys.argv[1])
            print("the password is", os.environ["DATABASE_PASSWORD"])
            print("postgresql://bloom:hunter22@database/bloom")
            print("api_key=0123456789abcdef, tokens=4096, eos_token: </s>")
        """,
        token,
        DATABASE_PASSWORD="correct horse battery",
    )
    assert token in process.communicate()[0]
    text = "".join(path.read_text() for path in run_dir.rglob("*.jsonl"))
    for secret in (token, "correct horse battery", "hunter22", "0123456789abcdef"):
        assert secret not in text
    assert "tokens=4096, eos_token: </s>" in text


def test_commands_and_configs_lose_their_secrets_and_keep_the_rest() -> None:
    assert redact_arguments(["train.py", "--hub-token", "abc", "--lr", "1e-4"])[2:] == [
        HIDDEN,
        "--lr",
        "1e-4",
    ]
    config = {
        "hub_token": "abc",
        "pad_token": "</s>",
        "deep": {"api_key": "x", "max_tokens": 5},
        "token": None,
    }
    assert redact_config(config) == {
        "hub_token": HIDDEN,
        "pad_token": "</s>",
        "deep": {"api_key": HIDDEN, "max_tokens": 5},
        "token": None,
    }
    assert redact("loss 1.5 at step 10") == "loss 1.5 at step 10"


WEB_TOKEN = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.c2lnbmF0dXJl"


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        (f"jwt {WEB_TOKEN}, again x-{WEB_TOKEN}", f"jwt {HIDDEN}, again x-{HIDDEN}"),
        ("MY_API_KEY=abcdefgh and mytoken: abcdefgh", f"MY_API_KEY={HIDDEN} and mytoken: {HIDDEN}"),
        ("'hub-token' = 'abcdefgh'", f"'hub-token' = '{HIDDEN}'"),
        ("max_tokens=4096000000", "max_tokens=4096000000"),
    ],
)
def test_a_secret_is_known_by_its_name_or_its_shape(said: str, shown: str) -> None:
    assert redact(said) == shown


@pytest.mark.parametrize("part", ["a", "a_", "-eyJ", "hf_", "token ", "-----BEGIN ", "x://a:", " "])
def test_long_texts_of_strangers_take_no_longer_than_they_are(part: str) -> None:
    # With a pattern that tries every position of a word again, this takes more than an hour.
    assert redact(f"token {part * 100_000}") == f"token {part * 100_000}"


def test_of_progress_bars_below_each_other_the_last_state_is_kept() -> None:
    lines, written = OutputLines(), io.StringIO()
    outer = tqdm(total=2, desc="train", file=written, mininterval=0)
    for _ in range(2):
        outer.update()
        inner = tqdm(total=3, desc="eval", file=written, mininterval=0, position=1, leave=True)
        for _ in range(3):
            inner.update()
        inner.close()
        written.write("{'eval_loss': 1.5}\n")
    unfinished = tqdm(total=9, desc="rest", file=written, mininterval=0)
    unfinished.update(4)
    unfinished.close()
    outer.close()
    kept = [fields["line"] for fields in [*lines.add("stderr", written.getvalue(), "info"), *lines.rest()]]
    states = [line.partition("|")[0] for line in kept]
    assert sorted(states) == sorted(["train: 100%", "eval: 100%", "eval: 100%", "rest:  44%", *[
        "{'eval_loss': 1.5}"] * 2])  # fmt: skip


def test_a_process_that_prints_without_end_keeps_its_run_small() -> None:
    lines = OutputLines()
    kept = [fields for _ in range(200) for fields in lines.add("stdout", ("x" * 999 + "\n") * 100, "info")]
    assert sum(len(fields["line"]) for fields in kept) < 9 << 20
    assert "lines of output were left out" in lines.rest()[-1]["line"]


def test_a_second_thread_and_a_closed_reporter_do_not_disturb(run_dir: Path) -> None:
    # Another test of this process may have left a Reporter open.
    before = vars(sys.stdout).get("write")
    first, second = (
        Reporter(run_dir, telemetry_seconds=0),
        Reporter(run_dir.with_name("b"), telemetry_seconds=0),
    )
    print("both")
    first.close()
    print("second")
    second.close()
    print("nobody")
    assert [line for _, _, line in lines_of(run_dir)] == ["both"]
    assert [line for _, _, line in lines_of(run_dir.with_name("b"))] == ["both", "second"]
    assert vars(sys.stdout).get("write") is before
    assert json.dumps([event.fields for event in read_all(run_dir)])
