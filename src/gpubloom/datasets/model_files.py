"""ModelFiles: what a model folder says about text: its chat template and its tokenizer."""

from dataclasses import dataclass
from pathlib import Path

from gpubloom.datasets.template import ChatTemplate
from gpubloom.datasets.tokens import RowTokenizer


@dataclass(frozen=True)
class ModelFiles:
    """How rows become text and tokens for one model."""

    template: ChatTemplate
    tokenizer: RowTokenizer

    @classmethod
    def load(cls, path: Path) -> "ModelFiles":
        """From a model folder, or a tokenizer.json (what lies beside it counts as well)."""
        folder = path if path.is_dir() else path.parent
        template = ChatTemplate.from_folder(folder)
        return cls(template, RowTokenizer.load(path, template.eos))
