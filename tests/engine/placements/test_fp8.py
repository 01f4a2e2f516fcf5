"""Products in fp8: what they compute, which layers use them, and who may ask for them.

On a CPU torch computes the same products slowly; the engine offers them on GPUs only.
"""

import pytest
import torch
from torch import nn

from gpubloom.engine.hardware import choose_compute
from gpubloom.engine.models.fp8 import Fp8Linear, use_fp8
from gpubloom.engine.models.lora import LoraSettings, with_lora
from gpubloom.engine.models.transformer import LlamaBlocks
from gpubloom.errors import InputError
from gpubloom.plan import Hardware, ModelShape, TrainConfig, named_shape, plan


def shape() -> ModelShape:
    return ModelShape(
        vocab_size=64,
        hidden_size=256,
        layers=1,
        heads=4,
        kv_heads=2,
        ffn_size=512,
        context_length=32,
        tie_embeddings=True,
    )


def layer(inputs: int = 256, outputs: int = 512) -> nn.Linear:
    torch.manual_seed(0)
    return nn.Linear(inputs, outputs, bias=True).bfloat16()


def fp8(plain: nn.Linear) -> nn.Linear:
    same = nn.Linear(plain.in_features, plain.out_features, dtype=torch.bfloat16)
    same.load_state_dict(plain.state_dict())
    same.__class__ = Fp8Linear
    return same


@pytest.mark.parametrize("spread", [1e-6, 1.0, 1e4])
def test_product_and_gradients_are_those_of_a_linear_layer(spread: float) -> None:
    """Whatever the size of the numbers: both operands are scaled."""
    plain = layer()
    x = (torch.randn(2, 16, 256) * spread).bfloat16()
    grad = (torch.randn(2, 16, 512) * spread).bfloat16()
    found = []
    for module in (plain, fp8(plain)):
        given = x.clone().requires_grad_()
        y = module(given)
        y.backward(grad)
        assert given.grad is not None
        assert module.weight.grad is not None
        assert module.bias.grad is not None
        found.append((y, given.grad, module.weight.grad, module.bias.grad))
    for one, other in zip(*found, strict=True):
        apart = (one.float() - other.float()).norm() / one.float().norm()
        assert apart < 0.08


def test_a_frozen_layer_passes_its_gradient_on() -> None:
    frozen = fp8(layer()).requires_grad_(requires_grad=False)
    x = torch.randn(16, 256).bfloat16().requires_grad_()
    frozen(x).sum().backward()
    assert x.grad is not None
    assert x.grad.isfinite().all()


def test_rows_that_do_not_fill_the_hardware_are_computed_in_bf16() -> None:
    plain = layer()
    x = torch.randn(3, 5, 256).bfloat16()
    assert torch.equal(fp8(plain)(x), plain(x))


def test_wide_layers_use_fp8_and_adapters_do_not() -> None:
    model = with_lora(LlamaBlocks(shape()), LoraSettings(rank=16, alpha=32))
    use_fp8(model)
    kinds = {path: type(module) for path, module in model.templates["layer"].named_modules()}
    assert kinds["self_attn.q_proj"] is Fp8Linear
    assert kinds["mlp.down_proj"] is Fp8Linear
    # Two heads of 64: too narrow to gain anything.
    assert kinds["self_attn.k_proj"] is nn.Linear
    assert kinds["mlp.down_proj.lora_A"] is nn.Linear


def test_a_gradient_that_is_not_finite_stays_so() -> None:
    module = fp8(layer())
    x = torch.randn(16, 256).bfloat16().requires_grad_()
    module(x).backward(torch.full((16, 512), float("inf"), dtype=torch.bfloat16))
    assert x.grad is not None
    assert not x.grad.isfinite().all()


def test_the_plan_offers_fp8_on_hopper_only() -> None:
    config = TrainConfig.model_validate({"precision": "fp8", "batch_size": 64})
    on_hopper, usual = (
        plan(each, machine("H200, 256 GB host"), shape=named_shape("qwen2.5-7b"))
        for each in (config, config.model_copy(update={"precision": "bf16"}))
    )
    assert on_hopper.step_seconds < usual.step_seconds
    for other in ("A100, 256 GB host", "64 GB host, 8 cores"):
        with pytest.raises(InputError, match="Hopper"):
            plan(config, machine(other))


def test_a_cpu_refuses_fp8() -> None:
    with pytest.raises(InputError, match="Hopper"):
        choose_compute("cpu", "fp8")


def machine(text: str) -> Hardware:
    return Hardware.parse(text)
