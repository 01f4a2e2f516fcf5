"""Bytes of a placement, counted by hand from what the block executor holds."""

from dataclasses import dataclass
from typing import Any

import pytest

from gpubloom.plan import BlockPlacement, Hardware, Placement, Plan, TrainConfig, predict
from gpubloom.plan.decoder import DecoderShape, padded
from gpubloom.plan.families import decoder_shape
from gpubloom.plan.placement import resident, streamed
from tests.errors import raises

LAYERS, D, F, V, ROWS, LENGTH = 6, 512, 1_024, 10_000, 4, 256
N = ROWS * LENGTH
SHAPE: DecoderShape = decoder_shape(
    {
        "model_type": "llama",
        "vocab_size": V,
        "hidden_size": D,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": 8,
        "intermediate_size": F,
        "tie_word_embeddings": False,
    }
)
P = padded(SHAPE.layers[0].tensors)
ENDS = padded(SHAPE.embedding_block) + padded(SHAPE.head_block)
KEPT = N * (4 * D + 2 * D + 2 * F)
HOST = BlockPlacement(state="host", weights="stream")
LINK = BlockPlacement(state="link", weights="stream")


@dataclass(frozen=True)
class Predicted:
    """What was predicted, on the GPU and on the host."""

    plan: Plan

    @property
    def gpu(self) -> tuple[int, int, int]:
        assert self.plan.gpu is not None
        return self.plan.gpu.weights, self.plan.gpu.gradients, self.plan.gpu.optimizer

    @property
    def host(self) -> tuple[int, int, int]:
        assert self.plan.host is not None
        return self.plan.host.weights, self.plan.host.gradients, self.plan.host.optimizer

    @property
    def activations(self) -> float:
        assert self.plan.gpu is not None
        # What the allocator rounds up is a constant to be fitted, not a fact.
        from gpubloom.plan.costs import RESERVED_OVER_ALLOCATED

        return self.plan.gpu.activations / RESERVED_OVER_ALLOCATED


def predicted(placement: Placement, **fields: Any) -> Predicted:
    config = TrainConfig.model_validate({"batch_size": ROWS, "model": {"context_length": LENGTH}, **fields})
    return Predicted(predict(config, Hardware.parse("H200, 125 GiB host"), placement, shape=SHAPE))


def mixed(*layers: BlockPlacement, **fields: Any) -> Placement:
    return Placement(embedding=BlockPlacement(), head=BlockPlacement(), layers=layers, **fields)


def test_a_resident_model_holds_sixteen_bytes_a_parameter_and_a_sum_for_its_ends() -> None:
    found = predicted(resident(LAYERS, tied=False))
    everything = LAYERS * P + ENDS
    assert found.gpu == (6 * everything, 2 * everything + 4 * ENDS, 8 * everything)
    assert found.host == (0, 0, 0)


def test_in_fp32_the_master_copy_is_what_computes() -> None:
    found = predicted(resident(LAYERS, tied=False), precision="fp32")
    everything = LAYERS * P + ENDS
    assert found.gpu == (4 * everything, 4 * everything, 8 * everything)


def test_a_streamed_model_holds_slots_and_two_gradients_and_the_host_fourteen_bytes() -> None:
    found = predicted(streamed(LAYERS, tied=False))
    assert found.gpu == (6 * ENDS + 4 * 2 * P, 6 * ENDS + 2 * 2 * P, 8 * ENDS)
    # The master's upper half is the copy that layers compute with.
    assert found.host == (4 * LAYERS * P, 2 * LAYERS * P, 8 * LAYERS * P)


def test_a_shared_gradient_takes_no_place_of_its_own() -> None:
    found = predicted(mixed(*[HOST] * LAYERS, share_gradients=True), precision="fp16")
    assert found.host == (6 * LAYERS * P, 0, 8 * LAYERS * P)


def test_a_linked_layer_keeps_its_gradient_on_the_gpu_and_passes_through_staging() -> None:
    found = predicted(mixed(*[HOST] * 4, *[LINK] * 2))
    assert found.gpu == (6 * ENDS + 4 * 2 * P, 6 * ENDS + (2 + 2) * 2 * P, 8 * ENDS + 2 * 12 * P)
    assert found.host == (4 * LAYERS * P, 2 * 4 * P, 8 * LAYERS * P)


def test_cast_weights_need_slots_instead_of_copies() -> None:
    found = predicted(mixed(*[BlockPlacement(weights="cast")] * LAYERS, slots=2))
    assert found.gpu[0] == 6 * ENDS + 4 * LAYERS * P + 2 * 2 * P


def test_accumulation_sums_one_layer_in_fp32_and_multiplies_what_waits() -> None:
    once, often = (
        predicted(streamed(LAYERS, tied=False)),
        predicted(streamed(LAYERS, tied=False), accumulation=3),
    )
    assert often.gpu[1] == once.gpu[1] + 4 * P
    assert often.activations - once.activations == pytest.approx(2 * (LAYERS + 2) * N * D * 2, abs=9)


def test_kept_layers_hold_their_activations_and_recomputed_ones_their_input() -> None:
    again = predicted(resident(LAYERS, tied=False, keep=False))
    kept = predicted(resident(LAYERS, tied=False, keep=True))
    assert kept.activations - again.activations == pytest.approx(LAYERS * (KEPT - N * D) * 2, abs=9)
    half = mixed(*[HOST] * 3, *[HOST.model_copy(update={"keep": True})] * 3)
    # A kept layer holds its weights from one pass to the next, besides the slots.
    assert predicted(half).gpu[0] == 6 * ENDS + (4 + 3) * 2 * P


def test_inputs_that_wait_on_the_host_leave_three_buffers_behind() -> None:
    here, away = predicted(mixed(*[HOST] * LAYERS)), predicted(mixed(*[HOST] * LAYERS, offload_inputs=True))
    assert here.activations - away.activations == pytest.approx((LAYERS - 3) * N * D * 2, abs=9)
    assert away.plan.host is not None
    assert away.plan.host.activations == LAYERS * N * D * 2


def test_adapters_are_all_that_has_a_state() -> None:
    found = predicted(resident(LAYERS, tied=False), method="lora", lora={"rank": 8})
    adapters = padded(SHAPE.layers[0].adapters(8, "all-linear"))
    frozen = 2 * (LAYERS * P + ENDS)
    assert found.gpu == (frozen + 6 * LAYERS * adapters, 2 * LAYERS * adapters, 8 * LAYERS * adapters)
    assert found.plan.trained_parameters == LAYERS * 8 * (4 * 2 * D + 3 * (D + F))


def test_four_bit_weights_need_a_quarter_and_one_decoded_layer() -> None:
    sixteen = predicted(resident(LAYERS, tied=False), method="lora")
    four = predicted(resident(LAYERS, tied=False), method="qlora")
    matrices = LAYERS * SHAPE.layers[0].matrix_weights
    assert sixteen.gpu[0] - four.gpu[0] == pytest.approx(matrices * (2 - 4.127 / 8) - 2 * P, abs=LAYERS)


def test_targets_choose_which_layers_are_adapted() -> None:
    found = predicted(resident(LAYERS, tied=False), method="lora", lora={"rank": 8, "targets": ["q_proj"]})
    assert found.plan.trained_parameters == LAYERS * 8 * 2 * D
    assert (
        found.plan.trained_parameters
        == predicted(
            resident(LAYERS, tied=False), method="lora", lora={"rank": 8, "targets": ["self_attn.q_proj"]}
        ).plan.trained_parameters
    )
    with raises(ValueError, code="unknown_lora_target", match="down_proj"):
        predicted(resident(LAYERS, tied=False), method="lora", lora={"targets": ["nothing"]})


def test_packed_examples_hold_a_mask_of_each_micro_batch_and_one_that_is_added() -> None:
    placement = resident(LAYERS, tied=False)
    tokenizer = {"kind": "file", "path": "/t/tokenizer.json"}

    def activations(packing: bool) -> float:
        data = {"kind": "examples", "packing": packing, "tokenizer": tokenizer}
        return predicted(placement, accumulation=3, data=data).activations

    # The loss works on more than a layer's backward pass does here, so what is added does not show.
    assert activations(True) - activations(False) == pytest.approx(3 * N * LENGTH, abs=10)


def test_packed_examples_on_a_gpu_leave_room_for_attention_by_boundaries() -> None:
    """The backward pass adds 128 positions per document; a row of 1,024 tokens has at most 32 documents."""
    placement = resident(LAYERS, tied=False).model_copy(update={"loss_chunk_tokens": 256})
    tokenizer = {"kind": "file", "path": "/t/tokenizer.json"}

    def activations(packing: bool) -> float:
        data = {"kind": "examples", "packing": packing, "tokenizer": tokenizer}
        shape = {"batch_size": 16, "model": {"context_length": 1024}}
        return predicted(placement, data=data, **shape).activations

    masks, padding = 16 * 1024 * 1024, 16 * 32 * 128 * D * 4
    assert activations(True) - activations(False) == pytest.approx(masks + padding, abs=10)


def test_with_dropout_every_adapter_has_its_inputs_to_itself() -> None:
    placement = mixed(*[BlockPlacement(keep=True)] * LAYERS)
    found = [
        predicted(placement, method="lora", lora={"dropout": dropout}).activations for dropout in (0.0, 0.1)
    ]
    # q, k, v, o, gate and up read the hidden state, down what lies between.
    assert found[1] - found[0] == pytest.approx(LAYERS * N * (6 * D + F) * 3, abs=10)


def test_a_recorded_step_leaves_room_for_evaluations_beside_it() -> None:
    placement = resident(LAYERS, tied=False)
    recorded = placement.model_copy(update={"cuda_graph": True})
    more = predicted(recorded).activations - predicted(placement).activations
    # Two layers' inputs, half of what a backward pass works on, and logits of 512 tokens with their softmax.
    working = 2 * N * (6 * D + 2 * D + 5.5 * F)
    assert more == pytest.approx(2 * 2 * N * D + working / 2 + 512 * V * (2 + 4 + 4), abs=10)
