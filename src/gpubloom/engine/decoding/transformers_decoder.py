"""TransformersDecoder: a model of any family of transformers, with keys and values in blocks.

The model's own layers compute; only their attention is replaced, by one that writes to and reads from the
pool. Nothing here knows a family. Whether a model can be computed like this is tried out: a few tokens must
give the logits that the model gives by itself, and each layer must say itself how far it sees.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn

from gpubloom.engine.decoding.kv_blocks import BLOCK, KvPool, flat_positions
from gpubloom.engine.decoding.llama_decoder import Piece, Rows
from gpubloom.engine.decoding.operations import attend_prompt, attend_rows, store

_IMPLEMENTATION = "gpubloom_blocks"
# Rotations that change with the length of a sequence: rows of a batch differ in it.
_BY_LENGTH = frozenset({"dynamic", "longrope"})
_TRIED = (3, 1, 4, 1, 5, 9, 2, 6)
_KNOWN_ATTENTION = frozenset({"full_attention", "sliding_attention"})

# With it open, adapters count for the rows where the tensor is 1, for all (True) or for none (False).
Adapted = Callable[[Tensor | bool], AbstractContextManager[None]]


@dataclass
class _Work:
    """What attention needs to know of the tokens that are being computed."""

    pool: KvPool
    where: Tensor
    rows: Rows | None = None
    piece: Piece | None = None


class TransformersDecoder:
    """Not for several threads at once."""

    def __init__(self, module: Any, context_length: int, adapted: Adapted, *, has_adapter: bool) -> None:
        config = module.config.get_text_config()
        embedding = module.get_input_embeddings().weight
        self.device, self.dtype = embedding.device, embedding.dtype
        self.layers = int(config.num_hidden_layers)
        # Known when the model has been tried out.
        self.kv_heads = self.head_size = 0
        self.context_length = context_length
        self.has_adapter = has_adapter
        self._module = module
        self._adapted = adapted
        self._work: _Work | None = None
        self._windows: dict[int, int | None] = {}
        # Masks of this shape are taken as they are; attention does not look at it.
        self._no_mask = torch.zeros(1, 1, 1, 1, dtype=self.dtype, device=self.device)

    @classmethod
    def of(
        cls, module: Any, context_length: int, adapted: Adapted, *, has_adapter: bool
    ) -> "TransformersDecoder | None":
        """None when this model must be computed as transformers does it, one sequence at a time."""
        if not getattr(module, "_supports_attention_backend", False) or _changes_with_length(module.config):
            return None
        try:
            decoder = cls(module, context_length, adapted, has_adapter=has_adapter)
            return decoder if decoder._agrees() else None
        except (RuntimeError, ValueError, TypeError, AttributeError, IndexError, KeyError, AssertionError):
            return None

    def rows(self, rows: Rows, pool: KvPool) -> Tensor:
        """Logits (B, V) of the token after each row's."""
        work = _Work(pool, flat_positions(rows.tables_BM, rows.positions_B), rows=rows)
        tuned = False if rows.tuned_B is None else rows.tuned_B
        return self._compute(work, rows.tokens_B[:, None], rows.positions_B[:, None], tuned)[:, -1]

    def prompt(self, piece: Piece, pool: KvPool) -> Tensor:
        """Logits (1, V) of the token after the piece."""
        length = len(piece.tokens_T)
        positions_T = torch.arange(piece.start, piece.start + length, device=self.device)
        work = _Work(pool, flat_positions(piece.table_M.expand(length, -1), positions_T), piece=piece)
        return self._compute(work, piece.tokens_T[None], positions_T[None], piece.tuned)[:, -1]

    def _compute(self, work: _Work | None, tokens: Tensor, positions: Tensor, tuned: Tensor | bool) -> Tensor:
        with self._own_attention(work), self._adapted(tuned):
            found = self._module(
                input_ids=tokens,
                position_ids=positions,
                attention_mask=self._no_mask,
                use_cache=False,
                logits_to_keep=1,
            )
        return cast(Tensor, found.logits)

    @contextmanager
    def _own_attention(self, work: _Work | None) -> Iterator[None]:
        from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

        ALL_ATTENTION_FUNCTIONS[_IMPLEMENTATION] = self._attend
        self._work = work
        try:
            with self._attention(_IMPLEMENTATION):
                yield
        finally:
            self._work = None

    @contextmanager
    def _attention(self, implementation: str) -> Iterator[None]:
        config = self._module.config.get_text_config()
        before = config._attn_implementation
        config._attn_implementation = implementation
        try:
            yield
        finally:
            config._attn_implementation = before

    def _attend(
        self,
        module: nn.Module,
        q_BNTH: Tensor,
        k_BKTH: Tensor,
        v_BKTH: Tensor,
        attention_mask: Tensor | None,
        scaling: float | None = None,
        softcap: float | None = None,
        sliding_window: int | None = None,
        **_: Any,
    ) -> tuple[Tensor, None]:
        work, layer = self._work, int(cast(Any, module).layer_idx)
        self._windows[layer] = sliding_window
        sizes = int(k_BKTH.shape[1]), int(k_BKTH.shape[3])
        if work is None:
            assert not self.head_size or (self.kv_heads, self.head_size) == sizes, "layers differ in size"
            self.kv_heads, self.head_size = sizes
            return torch.zeros_like(q_BNTH).transpose(1, 2), None
        keys, values = work.pool.keys[layer], work.pool.values[layer]
        scale = self.head_size**-0.5 if scaling is None else scaling
        seen: dict[str, Any] = {"window": sliding_window, "softcap": softcap}
        if work.rows is not None:
            store(keys, values, work.where, k_BKTH[:, :, 0], v_BKTH[:, :, 0])
            tables, positions = work.rows.tables_BM, work.rows.positions_B
            q_BNH = q_BNTH[:, :, 0].contiguous()
            y = attend_rows(q_BNH, keys, values, tables, positions, scale, **seen)[:, None]
        else:
            assert work.piece is not None
            store(keys, values, work.where, k_BKTH[0].transpose(0, 1), v_BKTH[0].transpose(0, 1))
            q_TNH = q_BNTH[0].transpose(0, 1)
            y = attend_prompt(q_TNH, keys, values, work.piece.table_M, work.piece.start, scale, **seen)[None]
        return y.view(*y.shape[:-1], -1, self.head_size), None

    @torch.inference_mode()
    def _agrees(self) -> bool:
        tokens_T = torch.tensor(_TRIED, device=self.device)
        # Without work, attention only notes the sizes that it is called with.
        self._compute(None, tokens_T[None, :1], torch.zeros_like(tokens_T)[None, :1], False)
        pool = KvPool(2, self.layers, self.kv_heads, self.head_size, self.dtype, self.device)
        # Not as the model would compute by itself: the fused attention of torch knows no soft cap.
        with self._adapted(False), self._attention("eager"):
            expected_V = self._module(input_ids=tokens_T[None], use_cache=False).logits[0, -1].float()
        table_M = torch.ones(1, dtype=torch.int32, device=self.device)
        assert len(_TRIED) <= BLOCK
        self.prompt(Piece(tokens_T[:-1], 0, table_M), pool)
        last = len(_TRIED) - 1
        rows = Rows(tokens_T[-1:], torch.tensor([last], device=self.device), table_M[None])
        found_V = self.rows(rows, pool)[0].float()
        tolerance = 1e-3 if self.dtype == torch.float32 else 5e-2
        error = (found_V - expected_V).abs().max() / expected_V.abs().max().clamp(min=1e-6)
        return bool(error < tolerance) and self._windows == self._expected_windows()

    def _expected_windows(self) -> dict[int, int | None]:
        config = self._module.config.get_text_config()
        window = getattr(config, "sliding_window", None)
        kinds = getattr(config, "layer_types", None)
        if kinds is None:
            used = getattr(config, "use_sliding_window", True)
            kinds = ["sliding_attention" if window and used else "full_attention"] * self.layers
        assert set(kinds) <= _KNOWN_ATTENTION
        return {index: window if kind == "sliding_attention" else None for index, kind in enumerate(kinds)}


def _changes_with_length(config: Any) -> bool:
    """Whether any of a model's rotations depends on the length of the sequence."""
    rotations = getattr(config.get_text_config(), "rope_parameters", None) or {}
    # Some families have a rotation for each kind of layer.
    several = [value for value in rotations.values() if isinstance(value, dict)] or [rotations]
    return any(rotation.get("rope_type") in _BY_LENGTH for rotation in several)
