"""check_model(folder): can this model be trained here, and what is wrong when it cannot.

Reads small files and the headers of large ones, so that it takes well under a second whatever the size.
Nothing of the model is run.
"""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from gpubloom.hub.catalogue import memory_by_method
from gpubloom.hub.checking_text import check_text
from gpubloom.hub.checking_weights import check_weights
from gpubloom.hub.findings import Finding, Severity, Tell
from gpubloom.plan.decoder import DecoderShape
from gpubloom.plan.families import FAMILIES, decoder_shape


@dataclass(frozen=True)
class Report:
    """What a model folder is and what is wrong with it. Sizes are None where they cannot be known."""

    findings: tuple[Finding, ...]
    family: str | None
    parameters: int | None
    context_length: int | None
    vocab_size: int | None
    chat_template: bool
    bytes: int
    # The least GPU memory by method, as in the catalogue.
    memory: dict[str, int] | None

    @property
    def ok(self) -> bool:
        return not any(finding.severity == "error" for finding in self.findings)

    def to_json(self) -> dict[str, Any]:
        return {"ok": self.ok} | asdict(self)


def check_model(folder: Path) -> Report:
    """The report of a folder in Hugging Face's layout; never raises over what is in it."""
    findings: list[Finding] = []

    def tell(code: str, severity: Severity, sentence: str) -> None:
        findings.append(Finding(code, severity, sentence))

    config = _read_config(folder, tell)
    shape = _check_architecture(folder, config, tell)
    if config is not None:
        check_weights(folder, shape, tell)
    chat = folder.is_dir() and check_text(folder, config or {}, tell)
    return Report(
        findings=tuple(findings),
        family=None if config is None else str(config.get("model_type")),
        parameters=None if shape is None else shape.parameters,
        context_length=None if shape is None else shape.max_positions,
        vocab_size=None if shape is None else shape.vocab_size,
        chat_template=chat,
        bytes=_size(folder),
        memory=None if shape is None or config is None else _memory(config),
    )


def _read_config(folder: Path, tell: Tell) -> dict[str, Any] | None:
    if not folder.is_dir():
        tell("folder_missing", "error", f"There is no folder {folder}.")
        return None
    file = folder / "config.json"
    if not file.is_file():
        if (folder / "adapter_config.json").is_file():
            tell(
                "adapter_only",
                "error",
                "This folder holds an adapter, which changes another model: choose that one, or export both "
                "merged.",
            )
        else:
            tell(
                "config_missing",
                "error",
                "There is no config.json: this is not a model in Hugging Face's layout.",
            )
        return None
    try:
        config = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as problem:
        tell("config_unreadable", "error", f"config.json cannot be read: {problem}.")
        return None
    if not isinstance(config, dict):
        tell("config_unreadable", "error", "config.json is no JSON object.")
        return None
    return config


def _check_architecture(folder: Path, config: dict[str, Any] | None, tell: Tell) -> DecoderShape | None:
    if config is None:
        return None
    family = str(config.get("model_type"))
    own_code = "auto_map" in config or any(folder.glob("*.py"))
    if family not in FAMILIES:
        if own_code:
            tell(
                "remote_code",
                "error",
                f"The model ({family}) needs code that comes with it, which is never run here: choose one of "
                f"{', '.join(sorted(FAMILIES))}.",
            )
        else:
            known = ", ".join(sorted(FAMILIES))
            tell(
                "architecture_unknown",
                "error",
                f"Models of type {family!r} cannot be trained here; there are {known}.",
            )
        return None
    if own_code:
        tell(
            "remote_code",
            "warning",
            f"The model brings code of its own; it is read as {family}, and its code is not run.",
        )
    if config.get("quantization_config"):
        method = config["quantization_config"]
        name = method.get("quant_method", "unknown") if isinstance(method, dict) else method
        tell(
            "quantized",
            "error",
            f"The weights are quantized already ({name}): start from the unquantized model; qlora makes its "
            "own 4-bit copy.",
        )
        return None
    try:
        return decoder_shape(config)
    except KeyError as missing:
        tell("config_incomplete", "error", f"config.json does not say {missing.args[0]}.")
    except (TypeError, ValueError, ZeroDivisionError) as problem:
        tell("config_incomplete", "error", f"config.json does not describe a model: {problem}.")
    return None


def _memory(config: dict[str, Any]) -> dict[str, int] | None:
    try:
        return {str(method): need for method, need in memory_by_method(config).items()}
    except (ValueError, KeyError, TypeError, AssertionError):
        # A shape that the planner cannot place says so when it is planned.
        return None


def _size(folder: Path) -> int:
    if not folder.is_dir():
        return 0
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
