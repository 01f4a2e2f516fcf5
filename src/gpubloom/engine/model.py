"""Model: which model a config means. Its blocks, where its first weights come from, and its config.json.

Opening a model reads no weights; the executor asks the source for them, block by block.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpubloom.engine.llama_folder import hugging_face_config
from gpubloom.engine.models.blocks import BlockModel, WeightSource
from gpubloom.engine.models.pretrained_llama import PretrainedLlama, open_llama
from gpubloom.engine.models.transformer import LlamaBlocks, RandomLlama
from gpubloom.errors import InputError
from gpubloom.hub.weight_index import check_model_config
from gpubloom.json_files import read_json
from gpubloom.plan import DecoderShape, ModelShape, TrainConfig, shape_of
from gpubloom.plan.rope import scaled_settings

if TYPE_CHECKING:
    from gpubloom.engine.models.hugging_face import HuggingFaceBlocks


@dataclass(frozen=True)
class Model:
    """What is trained. `settings` is its config.json, `generation` its generation_config.json."""

    blocks: BlockModel
    source: WeightSource
    shape: DecoderShape
    settings: dict[str, Any]
    notes: tuple[str, ...] = ()
    generation: dict[str, Any] | None = None

    @classmethod
    def open(cls, config: TrainConfig, *, vocab_size: int, end_of_text: int | None = None) -> "Model":
        """The model of a preset or of a model folder; with adapters when the method says so."""
        if config.method != "full" and config.model.path is None:
            raise InputError(
                "adapters_need_model",
                f"method {config.method} requires pretrained weights: set model.path to a model folder, or "
                "train a new model with method full.",
            )
        if config.model.path is None:
            model = cls._of_preset(config, vocab_size, end_of_text)
        else:
            model = cls._of_folder(config, Path(config.model.path))
        return model if config.method == "full" else model.with_adapters(config)

    @property
    def family(self) -> str:
        return str(self.settings["model_type"])

    @property
    def trained_parameters(self) -> int:
        """How many of its weights change: all, or those of the adapters."""
        return sum(tensor.length for block in self.blocks.blocks for tensor in block.trained)

    def with_adapters(self, config: TrainConfig) -> "Model":
        """The same model, frozen, with adapters that are trained."""
        from gpubloom.engine.models.lora import LoraSettings, LoraWeights, with_lora

        asked = config.lora
        settings = LoraSettings(asked.rank, asked.alpha, asked.targets, asked.dropout)
        adapted = with_lora(self.blocks, settings, config.seed)
        source = LoraWeights(adapted, self.source, config.seed)
        return replace(self, blocks=adapted, source=source)

    @classmethod
    def _of_preset(cls, config: TrainConfig, vocab_size: int, end_of_text: int | None) -> "Model":
        shape = config.model.shape(vocab_size)
        if config.model.architecture is not None:
            return cls._of_plugin(config, config.model.architecture, shape)
        return cls(
            blocks=LlamaBlocks(shape),
            source=RandomLlama(shape, config.seed),
            shape=shape.decoder(),
            settings=hugging_face_config(shape, end_of_text),
        )

    @classmethod
    def _of_plugin(cls, config: TrainConfig, name: str, shape: ModelShape) -> "Model":
        from gpubloom.engine.models.plugin_model import PluggedBlocks, plugged_settings
        from gpubloom.engine.models.weight_sources import RandomWeights

        blocks = PluggedBlocks(name, shape, config.model.options)
        return cls(
            blocks=blocks,
            source=RandomWeights(blocks, config.seed),
            shape=blocks.decoder(),
            settings=plugged_settings(name, shape, config.model.options),
            notes=(
                f"the plan assumes the speed and memory of a Llama model with these sizes, not of {name}",
            ),
        )

    @classmethod
    def _of_folder(cls, config: TrainConfig, folder: Path) -> "Model":
        from gpubloom.engine.models.weight_sources import PretrainedWeights, RandomWeights

        drawn = config.model.random_weights
        try:
            blocks = open_blocks(_scaled(config, folder), None if drawn else folder)
        except InputError as refused:
            if refused.code != "unsupported_architecture" or drawn:
                raise
            raise InputError(
                refused.code,
                f"{str(refused).rstrip('.')}. Use backend trl, which trains every causal language model of "
                "transformers that fits on one device.",
            ) from None
        return cls(
            blocks=blocks,
            source=RandomWeights(blocks, config.seed) if drawn else PretrainedWeights(folder, blocks),
            shape=shape_of(config),
            settings=blocks.settings,
            notes=blocks.notes,
            generation=_generation(folder),
        )


def open_blocks(
    described: Path | dict[str, Any], weights: Path | None = None
) -> "PretrainedLlama | HuggingFaceBlocks":
    """The model of a folder or of a config.json, by the engine's own layers where they compute the same.

    Otherwise by transformers' layers: importing those takes seconds. `weights`: the folder to be read.
    """
    from gpubloom.engine.models.hugging_face import open_model, read_model_config

    settings = read_model_config(described) if isinstance(described, Path) else described
    check_model_config(settings)
    blocks = open_llama(settings)
    if blocks is not None and (weights is None or _are_complete(weights, blocks)):
        return blocks
    return open_model(described)


def _are_complete(folder: Path, blocks: PretrainedLlama) -> bool:
    """False where tensors have other names, which transformers knows, or where it says what is wrong."""
    from gpubloom.engine.models.weight_sources import PretrainedWeights

    try:
        PretrainedWeights(folder, blocks)
    except InputError:
        return False
    return True


def _scaled(config: TrainConfig, folder: Path) -> Path | dict[str, Any]:
    """The folder, or its config.json with the RoPE scaling of the run."""
    if config.model.rope_scaling is None:
        return folder
    model = config.model.model_copy(update={"context_length": config.context_length})
    return scaled_settings(read_json(folder / "config.json"), model)


def _generation(folder: Path) -> dict[str, Any] | None:
    """How a model is meant to write: what ends a text, and the usual temperature."""
    file = folder / "generation_config.json"
    return read_json(file) if file.exists() else None
