"""`bloom train` as a person uses it: real processes, real files."""

import errno
import io
import json
import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import typer
from rich.console import Console

from gpubloom.cli.child_process import ENGINE, EarlyStart
from gpubloom.cli.serve_metrics import MetricsServer
from gpubloom.cli.train import _conclude, _introduce
from gpubloom.cli.train import start as train_start
from gpubloom.metrics_server.process import listen
from gpubloom.plan import Hardware, TrainConfig, plan
from gpubloom.traincard import ControlFile, Reporter, RunLock
from tests.errors import printed
from tests.small_disk import fill, small_disk
from tests.waiting import wait_until

TEXT = "".join(f"{number} bottles of beer on the wall, {number} bottles of beer.\n" for number in range(200))
BLOOM = (sys.executable, "-m", "gpubloom.cli")
SMALL = (
    "--set",
    "model.preset=nano",
    "--set",
    "model.context_length=32",
    "--batch-size",
    "8",
    "--epochs",
    "1",
)


def bloom(*arguments: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    process = start(*arguments, folder=folder, **environment)
    output, errors = process.communicate(timeout=150)
    return subprocess.CompletedProcess(arguments, process.returncode, output, errors)


def start(*arguments: str, folder: Path, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "gpubloom.cli", *arguments],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1", "NO_COLOR": "1", "COLUMNS": "200"} | environment,
    )


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A folder in which `bloom train` ran to its end, and what it printed."""
    folder = tmp_path_factory.mktemp("trained")
    (folder / "text.txt").write_text(TEXT)
    done = bloom("train", "text.txt", *SMALL, "--run-dir", "run", folder=folder)
    assert done.returncode == 0, done.stderr
    return folder, done.stdout


@pytest.mark.long
def test_a_run_is_trained_shown_and_kept(trained: tuple[Path, str]) -> None:
    folder, output = trained
    assert "Training on" in output
    assert "loss" in output
    assert "Done. The model is in run/model" in output
    kept = {path.name for path in (folder / "run").iterdir()}
    assert {
        "config.json",
        "plan.json",
        "train.py",
        "requirements.txt",
        "logs",
        "model",
        "checkpoints",
    } <= kept
    config = json.loads((folder / "run" / "config.json").read_text())
    assert config["data"]["train_path"] == str(folder / "text.txt")
    assert json.loads((folder / "run" / "plan.json").read_text())["parameters"] == 108_928


@pytest.mark.long
def test_generate_continues_a_prompt(trained: tuple[Path, str]) -> None:
    folder, _ = trained
    done = bloom("models", "generate", "run", "--max-tokens", "20", "--", "-- 9 bottles", folder=folder)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("-- 9 bottles")
    assert len(done.stdout) > 20


@pytest.mark.long
def test_generate_says_that_its_output_is_full(trained: tuple[Path, str]) -> None:
    folder, _ = trained
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [*BLOOM, "models", "generate", "run", "9 bottles", "--max-tokens", "5"],
            cwd=folder,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            env={name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"},
            check=False,
        )
    assert done.returncode == 1
    assert done.stderr == "error[cannot_write]: The output cannot be written: No space left on device.\n"


@pytest.mark.long
def test_a_terminal_gets_no_orders_from_generated_text(trained: tuple[Path, str]) -> None:
    folder, _ = trained
    terminal, end = pty.openpty()
    done = subprocess.run(
        [*BLOOM, "models", "generate", "run", "\x1b[2J\x9b1m9 bøttles", "--max-tokens", "5"],
        cwd=folder,
        stdout=end,
        stderr=subprocess.PIPE,
        check=False,
    )
    os.close(end)
    shown = os.read(terminal, 1_000).decode()
    os.close(terminal)
    assert (done.returncode, done.stderr) == (0, b"")
    assert "9 bøttles" in shown
    assert not {"\x1b", "\x9b"} & set(shown), repr(shown)


def test_generate_refuses_what_is_no_run(tmp_path: Path) -> None:
    done = bloom("models", "generate", "gone", "x", folder=tmp_path)
    assert done.returncode == 2
    assert printed(done.stderr) == ["run_not_found"]


def test_environment_and_dotenv_are_heard(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("TRAIN_DATA_PATH=gone.txt\n")
    assert printed(bloom("train", folder=tmp_path).stderr) == ["data_not_found"]
    done = bloom("train", folder=tmp_path, TRAIN_DATA_PATH="elsewhere.txt")
    assert str(tmp_path / "elsewhere.txt") in done.stderr


@pytest.mark.long
def test_ctrl_c_saves_and_says_how_to_resume(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text(TEXT)
    arguments = (
        "train",
        "--train-path",
        "text.txt",
        *SMALL,
        "--set",
        "epochs=8",
        "--checkpoint-dir",
        "saved",
    )
    process = start(*arguments, "--run-dir", "run", folder=tmp_path)
    events = tmp_path / "run" / "traincard" / "events.jsonl"
    wait_until(lambda: events.exists() and '"step":5,' in events.read_text())
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (130, "")
    assert "Saved a checkpoint at step" in output
    assert "Continue with: bloom train --resume run" in output
    assert list((tmp_path / "saved" / "run").glob("step-*"))

    # A pause that was asked for is lifted by resuming.
    ControlFile(tmp_path / "run").want("pause")
    done = bloom("train", "--resume", "run", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "Done." in done.stdout


@pytest.mark.long
def test_a_run_whose_output_is_closed_saves_and_stops(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text(TEXT)
    process = start("train", "text.txt", *SMALL, "--set", "epochs=500", "--run-dir", "run", folder=tmp_path)
    assert process.stdout is not None
    assert process.stderr is not None
    while not process.stdout.readline().startswith("step 1/"):
        assert process.poll() is None
    process.stdout.close()
    assert process.wait(timeout=120) == 130
    with process:
        assert "Continue with: bloom train --resume run" in process.stderr.read()
    assert RunLock.holder(tmp_path / "run") is None
    assert list((tmp_path / "run" / "checkpoints").glob("step-*"))


@pytest.mark.long
def test_a_run_whose_output_cannot_be_written_saves_and_stops(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text(TEXT)
    with small_disk(tmp_path / "small", "64k") as small, (small / "shown").open("wb") as shown:
        process = subprocess.Popen(
            [*BLOOM, "train", "text.txt", *SMALL, "--set", "epochs=500", "--run-dir", "run"],
            cwd=tmp_path,
            stdout=shown,
            stderr=subprocess.PIPE,
            text=True,
        )
        while b"step 1/" not in (small / "shown").read_bytes():
            assert process.poll() is None
        fill(small)
        _, errors = process.communicate(timeout=120)
    assert process.returncode == 130
    assert errors == (
        "The output cannot be written (No space left on device), so the run stopped. "
        "Continue with: bloom train --resume run\n"
    )
    assert RunLock.holder(tmp_path / "run") is None
    assert list((tmp_path / "run" / "checkpoints").glob("step-*"))


def test_an_output_that_is_full_is_named_and_leaves_no_run_directory(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text(TEXT)
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [*BLOOM, "train", "text.txt", *SMALL, "--run-dir", "run"],
            cwd=tmp_path,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == 130
    assert done.stderr == "The output cannot be written (No space left on device), so no run was started.\n"
    assert not (tmp_path / "run").exists()


def test_an_output_that_nobody_reads_leaves_no_run_directory(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text(TEXT)
    read, write_end = os.pipe()
    os.close(read)
    done = subprocess.run(
        [*BLOOM, "train", "text.txt", *SMALL, "--run-dir", "run"],
        cwd=tmp_path,
        stdout=write_end,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    os.close(write_end)
    assert (done.returncode, done.stderr) == (130, "The output was closed, so no run was started.\n")
    assert not (tmp_path / "run").exists()


def test_an_output_that_ends_before_the_dashboard_leaves_no_run_directory(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    class Closed(io.StringIO):
        def write(self, text: str) -> int:
            if "Dashboard" in text:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return super().write(text)

    (tmp_path / "text.txt").write_text(TEXT)
    flags = {"data.train_path": str(tmp_path / "text.txt")}
    server = MetricsServer(listen("127.0.0.1:0"))
    with EarlyStart(ENGINE) as early, pytest.raises(typer.Exit):
        train_start(
            flags,
            ["model.preset=nano"],
            None,
            tmp_path / "run",
            Console(file=Closed()),
            early,
            server=server,
        )
    server.close()
    assert capsys.readouterr().err == (
        "The output cannot be written (No space left on device), so no run was started.\n"
    )
    assert not (tmp_path / "run").exists()


def test_a_run_is_not_resumed_for_an_output_that_nobody_reads(tmp_path: Path) -> None:
    Reporter(run_dir=tmp_path / "run").close()
    (tmp_path / "run" / "train.py").touch()
    ControlFile(tmp_path / "run").want("pause")
    read, write_end = os.pipe()
    os.close(read)
    done = subprocess.run(
        [*BLOOM, "train", "--resume", "run"],
        cwd=tmp_path,
        stdout=write_end,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    os.close(write_end)
    assert (done.returncode, done.stderr) == (130, "The output was closed, so the run was not resumed.\n")
    assert ControlFile(tmp_path / "run").read().want == "pause"


@pytest.mark.long
def test_ctrl_c_ends_generate_without_a_stack_trace(trained: tuple[Path, str]) -> None:
    folder, _ = trained
    process = subprocess.Popen(
        [sys.executable, "-m", "gpubloom.cli", "models", "generate", "run", "--max-tokens", "1000000"],
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        process_group=0,
    )
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    while not children.read_text():
        assert process.poll() is None
    # The child loads its modules now. A terminal sends Ctrl-C to the whole group.
    time.sleep(0.2)
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (130, "")


@pytest.mark.long
def test_generate_ends_quietly_when_its_reader_has_enough(trained: tuple[Path, str]) -> None:
    folder, _ = trained
    process = start("models", "generate", "run", "9 bottles", "--max-tokens", "1000000", folder=folder)
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.read(20)
    process.stdout.close()
    with process:
        assert process.wait(timeout=60) == 128 + signal.SIGPIPE
        assert process.stderr.read() == ""


def nothing(folder: Path) -> None:
    """A case that needs no file."""


def write(name: str, content: bytes) -> Callable[[Path], None]:
    return lambda folder: (folder / name).write_bytes(content) and None


def image_folder(folder: Path) -> None:
    (folder / "images").mkdir()
    (folder / "images" / "a.png").write_bytes(b"\x89PNG\0\0")


def run_directory(folder: Path) -> None:
    Reporter(folder / "my run", announce=False).close()
    (folder / "my run" / "train.py").touch()


def model_folder(folder: Path) -> None:
    (folder / "model").mkdir()
    for name in ("config.json", "model.safetensors"):
        (folder / "model" / name).write_text("{}")


def something_in_run(folder: Path) -> None:
    (folder / "text.txt").write_text(TEXT)
    (folder / "run").mkdir()
    (folder / "run" / "precious").write_text("mine")


@pytest.mark.long
@pytest.mark.parametrize(
    ("prepare", "arguments", "code", "names"),
    [
        (nothing, ["--train-path", "gone.txt"], "data_not_found", "gone.txt"),
        (nothing, ["--train-path", "*.gone"], "data_not_found", "*.gone"),
        (write("empty.txt", b""), ["--train-path", "empty.txt"], "data_empty", "empty.txt"),
        (write("noise.txt", bytes(999)), ["--train-path", "noise.txt"], "binary_file", "noise.txt"),
        (write("latin.txt", b"\xe4" * 999), ["--train-path", "latin.txt"], "not_utf8", "latin.txt"),
        (write("short.txt", b"short"), ["--train-path", "short.txt"], "data_too_short", "6 tokens"),
        (image_folder, ["--train-path", "images"], "data_without_text", "images"),
        (run_directory, ["my run"], "data_without_text", "bloom train --resume '"),
        (model_folder, ["model"], "data_without_text", "bloom finetune "),
        (nothing, ["--learning-speed", "1"], "usage", "--learning-speed"),
        (nothing, ["--set", "lerning_rate=1"], "extra_forbidden", "learning_rate"),
        (nothing, ["--set", "model.hidden_size=9999999"], "less_than_equal", "65,536 (MAX_HIDDEN_SIZE)"),
        (nothing, ["--epochs", "0"], "greater_than_equal", "epochs 0"),
        (nothing, ["--gpu", "99"], "device_not_found", "cuda:99"),
        (nothing, ["--set", "model.preset=70b", "--set", "device=cpu"], "does_not_fit", "GB"),
        (write("c.json", b"{"), ["--config", "c.json"], "not_json", "c.json"),
        (
            write("c.json", b'{"epoch": 3}'),
            ["--config", "c.json"],
            "extra_forbidden",
            "epochs",
        ),
        (something_in_run, ["--train-path", "text.txt", "--run-dir", "run"], "folder_not_empty", "run"),
        (
            something_in_run,
            ["--train-path", "text.txt", "--run-dir", "text.txt/run"],
            "cannot_write",
            "Not a directory",
        ),
        (something_in_run, ["--resume", "run"], "run_not_found", "run"),
        (nothing, ["--resume", "run", "--epochs", "3"], "invalid_option", "--resume"),
        (nothing, ["--resume", "run", "text.txt"], "invalid_option", "--resume"),
        (nothing, ["gone.txt"], "data_not_found", "gone.txt"),
        (nothing, ["text.txt", "--train-path", "text.txt"], "invalid_option", "--train-path"),
    ],
)
def test_wrong_input_gets_one_sentence_and_leaves_nothing_behind(
    tmp_path: Path, prepare: Callable[[Path], None], arguments: list[str], code: str, names: str
) -> None:
    prepare(tmp_path)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    done = bloom("train", *arguments, folder=tmp_path)
    assert done.returncode == 2
    assert printed(done.stderr) == [code]
    assert names in done.stderr
    if code != "usage":
        assert done.stderr.count("\n") == 1
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_an_empty_file_is_refused_before_a_run_is_made(tmp_path: Path) -> None:
    (tmp_path / "empty.txt").touch()
    done = bloom("train", "--train-path", "empty.txt", folder=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert not (tmp_path / "runs").exists()


@pytest.mark.long
def test_a_run_that_cannot_be_resumed_is_left_as_it_is(trained: tuple[Path, str], tmp_path: Path) -> None:
    folder, _ = trained
    (tmp_path / "text.txt").write_text(TEXT)
    subprocess.run(["cp", "-r", str(folder / "run"), str(tmp_path / "run")], check=True)
    run = tmp_path / "run"

    def refusal() -> str:
        done = bloom("train", "--resume", "run", folder=tmp_path)
        assert (done.returncode, done.stderr.count("\n")) == (2, 1)
        # Nothing of the earlier run is told as if it were news.
        assert "Did it improve?" not in done.stdout
        return done.stderr

    assert "is already complete" in refusal()

    subprocess.run(["rm", "-r", str(run / "model")], check=True)
    lock = RunLock.acquire(run)
    assert f"in use: process {os.getpid()}" in refusal()
    lock.release()

    weights = next((run / "checkpoints").glob("step-*")) / "model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    assert "model.safetensors has the sha256 checksum" in refusal()
    assert weights.read_bytes() == bytes(content)
    content[-1] ^= 1
    weights.write_bytes(content)

    config = json.loads((run / "config.json").read_text())
    config["model"]["layers"] = 3
    (run / "config.json").write_text(json.dumps(config))
    assert "belongs to another architecture: num_hidden_layers 2 instead of 3" in refusal()


def test_rows_of_examples_that_are_read_as_text_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    hardware = Hardware(name="box", host_memory_bytes=16 * 10**9, cpu_cores=4)

    def introduced(path: str) -> str:
        config = TrainConfig.model_validate({"max_steps": 1, "data": {"train_path": path}})
        _introduce(config, plan(config, hardware), Path("run"), Console(width=300))
        return capsys.readouterr().out

    assert "bloom finetune MODEL '/my data/chats.jsonl'" in introduced("/my data/chats.jsonl")
    text = introduced("/my data/text.txt")
    assert "warning" not in text
    assert "1 step of" in text


def test_the_schema_of_the_config_is_printed(tmp_path: Path) -> None:
    done = bloom("runs", "config-schema", folder=tmp_path)
    assert "learning_rate" in json.loads(done.stdout)["properties"]


_CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 300,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "max_position_embeddings": 1_024,
}


def test_a_run_of_unsloth_is_started_by_the_interpreter_that_was_named(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text(TEXT)
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text(json.dumps(_CONFIG))
    python = tmp_path / "python"
    python.write_text('#!/bin/sh\necho "asked to run $2 $3"\nexit 2\n')
    python.chmod(0o755)
    settings = ["backend=unsloth", "method=lora", f"model.path={model}", "device=cpu"]
    done = bloom(
        *("train", "--train-path", "text.txt", "--run-dir", "run"),
        *(part for each in settings for part in ("--set", each)),
        folder=tmp_path,
        BLOOM_UNSLOTH_PYTHON=str(python),
    )
    assert done.returncode == 2, done.stdout
    assert done.stderr.strip() == "error[failed]: asked to run run/train.py"


def slow_to_load(folder: Path) -> dict[str, str]:
    """The environment of a training whose process loads for ever."""
    python = folder / "python"
    python.write_text("#!/bin/sh\ntouch loading\nexec sleep 1000\n")
    python.chmod(0o755)
    return {"BLOOM_UNSLOTH_PYTHON": str(python)}


def unsloth_model(folder: Path) -> Path:
    model = folder / "model"
    model.mkdir()
    (model / "config.json").write_text(json.dumps(_CONFIG))
    return model


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_new_run_that_is_stopped_while_it_loads_leaves_no_run_directory(
    tmp_path: Path, number: signal.Signals
) -> None:
    (tmp_path / "text.txt").write_text(TEXT)
    settings = ["backend=unsloth", "method=lora", f"model.path={unsloth_model(tmp_path)}", "device=cpu"]
    process = start(
        *("train", "text.txt", "--run-dir", "run"),
        *(part for each in settings for part in ("--set", each)),
        folder=tmp_path,
        **slow_to_load(tmp_path),
    )
    wait_until((tmp_path / "loading").exists)
    process.send_signal(number)
    output, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (130, "")
    assert output.splitlines()[-1] == "Stopped before the first step. run was removed."
    assert not (tmp_path / "run").exists()


def test_a_new_run_that_is_stopped_while_it_fetches_its_data_is_kept(tmp_path: Path) -> None:
    settings = ["backend=unsloth", "method=lora", f"model.path={unsloth_model(tmp_path)}", "device=cpu"]
    process = start(
        *("train", "https://data.invalid/text.txt", "--run-dir", "run"),
        *(part for each in settings for part in ("--set", each)),
        folder=tmp_path,
        **slow_to_load(tmp_path),
    )
    wait_until((tmp_path / "loading").exists)
    (tmp_path / "run" / ".data").mkdir()
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (130, "")
    assert output.splitlines()[-1] == "Continue with: bloom train --resume run"
    assert (tmp_path / "run" / "train.py").exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_new_run_that_is_stopped_before_its_process_starts_leaves_no_run_directory(
    tmp_path: Path, number: signal.Signals
) -> None:
    (tmp_path / "text.txt").write_text(TEXT)
    stopped = (
        "import os, gpubloom.cli, gpubloom.cli.preflight as preflight\n"
        f"preflight.hand_over = lambda *given: os.kill(os.getpid(), {number:d})\n"
        "gpubloom.cli.main()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", stopped, "train", "text.txt", *SMALL, "--run-dir", "run"],
        cwd=tmp_path,
        capture_output=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (130, b"")
    assert not (tmp_path / "run").exists()


def test_a_resumed_run_that_is_stopped_while_it_loads_is_kept(tmp_path: Path) -> None:
    run = tmp_path / "run"
    with Reporter(run, telemetry_seconds=0, capture=False, announce=False) as reporter:
        reporter.progress(5, 10)
        reporter.checkpoint("checkpoints/step-00000005", step=5)
        reporter.finish("paused")
    (run / "train.py").touch()
    model = {"path": str(unsloth_model(tmp_path))}
    config = TrainConfig.model_validate({"backend": "unsloth", "method": "lora", "model": model})
    (run / "config.json").write_text(config.to_json())
    process = start("train", "--resume", "run", folder=tmp_path, **slow_to_load(tmp_path))
    wait_until((tmp_path / "loading").exists)
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (130, "")
    assert output.splitlines()[-2:] == [
        "Stopped without saving a checkpoint. The newest checkpoint is of step 5.",
        "Continue with: bloom train --resume run",
    ]
    assert (run / "config.json").exists()


def test_a_run_that_was_stopped_without_a_checkpoint_has_not_failed(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    with Reporter(tmp_path, telemetry_seconds=0, capture=False, announce=False) as reporter:
        reporter.progress(5, 10)
        reporter.finish("interrupted")
    _conclude(tmp_path, -signal.SIGINT, Console(), interrupted=True)
    shown = capsys.readouterr()
    assert shown.err == ""
    assert shown.out.startswith("Stopped without saving a checkpoint.\nContinue with:")


def test_the_commands_that_are_proposed_can_be_pasted(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    run = tmp_path / "my first run"
    with Reporter(run, telemetry_seconds=0, capture=False, announce=False) as reporter:
        reporter.finish("completed")
    (run / "config.json").write_text(TrainConfig().to_json())
    _conclude(run, 0, Console(highlight=False, markup=False))
    assert f"bloom models generate '{run}'" in capsys.readouterr().out
    # Nothing computes text with a model of a plug-in.
    config = TrainConfig.model_validate({"model": {"preset": "nano", "architecture": "convolutions"}})
    (run / "config.json").write_text(config.to_json())
    _conclude(run, 0, Console(highlight=False, markup=False))
    shown = capsys.readouterr().out
    assert "Done." in shown
    assert "Try it" not in shown
