"""How a script keeps what it learned, how it goes on from there, and where it writes its curves."""

from collections.abc import Iterable

from gpubloom.scripts.facts import Call
from gpubloom.scripts.requirements import Detected, Evidence, ScriptCheckpoints
from gpubloom.scripts.script import Script
from gpubloom.scripts.workload import hf_arguments, lightning_trainers

_TRACKERS = {
    "wandb": "wandb", "mlflow": "mlflow", "comet_ml": "comet", "neptune": "neptune", "clearml": "clearml",
    "trackio": "trackio", "aim": "aim", "swanlab": "swanlab",
}  # fmt: skip
_FOLDERS = ("out_dir", "output_dir", "checkpoint_dir", "ckpt_dir", "save_dir", "save_path", "checkpoint_path")
_RESUME_ARGUMENTS = ("resume", "resume_from_checkpoint", "resume_from", "ckpt_path", "load_checkpoint")
_LOADS = ("load", "load_state_dict", "load_weights", "load_state", "restore", "load_checkpoint", "load_model")


def checkpoints(script: Script) -> Detected[ScriptCheckpoints] | None:
    """None: it saves nothing."""
    saved = _saves(script)
    if saved is None:
        return None
    how, evidence = saved
    folder = script.values.setting(*_FOLDERS)
    named = _folder_of_calls(script)
    resumes, arguments, lines = _resumes(script)
    return Detected(
        value=ScriptCheckpoints(
            saves_with=how,
            folder=named or (folder.value if folder is not None and isinstance(folder.value, str) else None),
            resumes_with=resumes,
            resume_arguments=arguments,
        ),
        confidence="stated" if resumes else "derived",
        evidence=(*evidence, *lines),
        reason=None if resumes else "The script does not resume from a checkpoint.",
    )


def _saves(script: Script) -> tuple[str, tuple[Evidence, ...]] | None:
    hugging_face = hf_arguments(script)
    if hugging_face:
        known = script.keyword(hugging_face[0], "save_strategy")
        if known is None or known.value != "no":
            return "transformers.Trainer", script.evidence(hugging_face[0])
    for tail, how in (
        ("ModelCheckpoint", "ModelCheckpoint"),
        ("save_state", "accelerator.save_state"),
        ("save_checkpoint", "save_checkpoint"),
        ("CheckpointManager", "CheckpointManager"),
        ("PyTreeCheckpointer", "orbax"),
        ("StandardCheckpointer", "orbax"),
    ):
        if (call := _one(script.calls(tail))) is not None:
            return how, script.evidence(call)
    if (call := _one(script.calls_of("torch.save", "torch.distributed.checkpoint.save"))) is not None:
        return "torch.save", script.evidence(call)
    lightning = lightning_trainers(script)
    if lightning:
        known = script.keyword(lightning[0], "enable_checkpointing")
        if known is None or known.value is not False:
            return "lightning.Trainer", script.evidence(lightning[0])
    for tail in ("save_pretrained", "save_weights", "save_model", "dump", "save_file"):
        call = _one(script.calls(tail))
        if call is not None and not call.name.startswith(("json.", "yaml.")):
            return call.tail if call.tail != "dump" else call.name, script.evidence(call)
    call = next((call for call in script.calls("save") if call.name.startswith(("model.", "tf."))), None)
    return None if call is None else ("model.save", script.evidence(call))


def _folder_of_calls(script: Script) -> str | None:
    some = [*hf_arguments(script), *script.calls("ModelCheckpoint")]
    for call in some:
        known = script.keyword(call, "output_dir", "dirpath", "filepath", position=0)
        if known is not None and isinstance(known.value, str):
            return known.value
    return None


def _resumes(script: Script) -> tuple[str | None, tuple[str, ...], tuple[Evidence, ...]]:
    """How, what to add to the command line, and where that stands."""
    for call in script.calls("train", "fit"):
        for name in ("resume_from_checkpoint", "ckpt_path"):
            if not script.has_keyword(call, name):
                continue
            known = script.keyword(call, name)
            value = known.value if known is not None else None
            arguments = () if value else _resume_arguments(script)
            return f"{name}={value}" if value else name, arguments, script.evidence(call)
    begin = script.values.setting("init_from")
    if begin is not None and any(text == "resume" for facts in script.files for text, _ in facts.strings):
        arguments = () if begin.value == "resume" else ("--init_from=resume",)
        return "init_from=resume", arguments, begin.evidence[:1]
    if arguments := _resume_arguments(script):
        call = next(
            call for call in script.calls("add_argument", "option", "Option") if _flag(call) in arguments[0]
        )
        return arguments[0], arguments, script.evidence(call)
    for call in script.calls(*_LOADS):
        prefix = call.name.rpartition(".")[0]
        if call.tail == "load" and not prefix.startswith("torch"):
            continue
        if call.tail == "load_model" and not prefix:
            continue
        return call.name.lstrip("."), (), script.evidence(call)
    return None, (), ()


def _resume_arguments(script: Script) -> tuple[str, ...]:
    """`--resume`, where the script's own command line has it. One that takes a value is left to people."""
    for call in script.calls("add_argument", "option", "Option"):
        flag = _flag(call)
        if flag.lstrip("-").replace("-", "_") in _RESUME_ARGUMENTS:
            action = script.keyword(call, "action", "is_flag")
            is_switch = action is not None and action.value in {"store_true", True}
            return (flag,) if is_switch else (f"{flag}=PATH",)
    return ()


def _flag(call: Call) -> str:
    values = [getattr(argument, "value", None) for argument in call.node.args]
    return next((value for value in values if isinstance(value, str) and value.startswith("--")), "")


def trackers(script: Script) -> tuple[Detected[str], ...]:
    """Services that are told how a run goes."""
    found: dict[str, Detected[str]] = {}
    for package, name in _TRACKERS.items():
        if evidence := script.imported(package):
            found[name] = Detected(value=name, confidence="stated", evidence=evidence)
    for call in hf_arguments(script):
        for name in _reports_to(script, call):
            if name not in {"none", "all", "tensorboard"}:
                found.setdefault(
                    name, Detected(value=name, confidence="stated", evidence=script.evidence(call))
                )
    return tuple(found.values())


def writes_tensorboard(script: Script) -> Detected[bool]:
    some = script.calls("SummaryWriter", "TensorBoardLogger", "TensorBoard", "create_file_writer")
    if (call := _one(some)) is not None:
        return Detected(value=True, confidence="stated", evidence=script.evidence(call))
    for call in hf_arguments(script):
        if "tensorboard" in _reports_to(script, call):
            return Detected(value=True, confidence="stated", evidence=script.evidence(call))
    for call in script.calls("Accelerator"):
        known = script.keyword(call, "log_with")
        if known is not None and known.value == "tensorboard":
            return Detected(value=True, confidence="stated", evidence=script.evidence(call))
    return Detected(value=False, confidence="derived", reason="The script writes no TensorBoard files.")


def _reports_to(script: Script, call: Call) -> list[str]:
    known = script.keyword(call, "report_to")
    if known is None:
        return []
    values = known.value if isinstance(known.value, list) else [known.value]
    return [value for value in values if isinstance(value, str)]


def _one(calls: Iterable[Call]) -> Call | None:
    return next(iter(calls), None)
