"""Commands reach the trainer, each of them, once."""

from pathlib import Path

import pytest

from gpubloom.traincard import Control, ControlFile, Reporter, load_latest
from tests.errors import raises
from tests.traincard.conftest import StartScript, events_of


def test_nothing_said_is_version_zero(run_dir: Path) -> None:
    assert ControlFile(run_dir).read().version == 0
    assert Control(run_dir).poll() is None


def test_commands_merge_into_one_desired_state(run_dir: Path) -> None:
    control, file = Control(run_dir), ControlFile(run_dir)
    file.set({"learning_rate": 1e-4})
    file.save()
    file.set({"max_steps": 50})
    file.want("pause")
    command = control.poll()
    assert command is not None
    assert (command.version, command.want, command.save_now) == (4, "pause", True)
    assert command.set == {"learning_rate": 1e-4, "max_steps": 50}
    assert control.poll() is None


def test_every_change_is_seen_even_within_one_tick_of_the_clock(run_dir: Path) -> None:
    control, file = Control(run_dir), ControlFile(run_dir)
    for number in range(200):
        file.set({"learning_rate": number % 10})
        command = control.poll()
        assert command is not None
        assert command.set["learning_rate"] == number % 10


def test_a_save_asked_for_before_the_attempt_began_is_past(run_dir: Path) -> None:
    ControlFile(run_dir).save()
    control = Control(run_dir)
    first = control.poll()
    assert first is not None
    assert not first.save_now
    ControlFile(run_dir).save()
    second = control.poll()
    assert second is not None
    assert second.save_now


def test_two_writers_at_once_lose_no_command(start_script: StartScript, run_dir: Path) -> None:
    script = """
        import sys
        from gpubloom.traincard import ControlFile
        file = ControlFile(sys.argv[1])
        for number in range(60):
            file.set({f"{sys.argv[2]}_{number}": number})
            file.save()
    """
    processes = [start_script(script, str(run_dir), name) for name in ("first", "second")]
    for process in processes:
        assert process.wait() == 0, process.communicate()[1]
    command = ControlFile(run_dir).read()
    assert command.version == 240
    assert command.save == 120
    assert len(command.set) == 120


def test_an_unknown_want_is_refused_and_changes_nothing(run_dir: Path) -> None:
    with raises(ValueError, code="invalid_control"):
        ControlFile(run_dir).want("explode")  # type: ignore[arg-type]
    assert ControlFile(run_dir).read().version == 0


@pytest.mark.parametrize("text", ["{", "[]", '{"version": "x"}', '{"version": 1, "want": "explode"}'])
def test_a_damaged_file_changes_nothing_and_is_explained(run_dir: Path, text: str) -> None:
    control = Control(run_dir)
    ControlFile(run_dir).want("pause")
    (run_dir / "traincard" / "control.json").write_text(text)
    assert control.poll() is None
    assert control.problem is not None
    assert "control.json" in control.problem


def test_applied_is_recorded_with_what_was_refused(run_dir: Path) -> None:
    with Reporter(run_dir, telemetry_seconds=0) as reporter:
        ControlFile(run_dir).set({"color": "red"})
        command = reporter.control.poll()
        assert command is not None
        reporter.applied(command.version, refused={"color": "no such setting"})
    assert events_of(run_dir, "applied")[0].fields["refused"] == {"color": "no such setting"}
    latest = load_latest(run_dir)
    assert latest is not None
    assert latest["control_version"] == 1


def test_a_trainer_reports_a_damaged_file_once(run_dir: Path) -> None:
    with Reporter(run_dir, telemetry_seconds=0) as reporter:
        (run_dir / "traincard" / "control.json").write_text("{")
        for _ in range(3):
            reporter.control.poll()
    assert [event.fields["level"] for event in events_of(run_dir, "log")] == ["error"]


def test_looking_reads_nothing_while_nothing_changes(run_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ControlFile(run_dir).save()
    control = Control(run_dir)
    assert control.poll() is not None
    read: list[Path] = []
    monkeypatch.setattr("gpubloom.traincard.control.read_json_object", lambda path: read.append(path) or {})
    for _ in range(1000):
        assert control.poll() is None
    assert read == []
