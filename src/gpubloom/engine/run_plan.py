"""The plan that a run trains by: made where it trains, with what plan.json keeps of earlier attempts.

plan.json keeps what a resumed run must not choose anew, because the choice depends on measured speeds: the
first compiled step, and for a deterministic run the placement. Of several processes the leader chooses and
keeps both; all must ask it alike.
"""

import json
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import ValidationError

from gpubloom.engine.compile_cache import programs_are_kept
from gpubloom.engine.model import Model
from gpubloom.engine.parallel import Group
from gpubloom.errors import InputError
from gpubloom.plan import DoesNotFit, Hardware, Plan, TrainConfig, costs, plan
from gpubloom.plan.compiling import CompileChoice, compiled_from_step
from gpubloom.plan.placement import Placement
from gpubloom.plan.planner import predict
from gpubloom.traincard.atomic_write import read_json_object, replace_file


class RunPlan(NamedTuple):
    """The first compiled step is 0 where none is; `config` is what the plan was made for."""

    config: TrainConfig
    plan: Plan
    first_compiled_step: int


class _Run(NamedTuple):
    """What every choice depends on."""

    model: Model
    hardware: Hardware
    group: Group
    run_dir: Path | None

    def all(self, condition: bool) -> bool:
        """Whether it holds in every process."""
        return self.group.total(int(condition)) == (self.group.size,)

    def plan(self, config: TrainConfig) -> Plan:
        return plan(config, self.hardware, shape=self.model.shape)

    def agreed_plan(self, config: TrainConfig) -> tuple[TrainConfig, Plan]:
        """Devices may differ, but all processes must either have the whole model or a part of it."""
        found = self.plan(config)
        if self.group.agree(found.executor) != found.executor:
            other = "sharded" if found.executor == "block" else "block"
            config = config.model_copy(update={"executor": other})
            found = self.plan(config)
        return config, found


def plan_run(
    config: TrainConfig,
    hardware: Hardware,
    model: Model,
    *,
    steps: int | None,
    group: Group,
    run_dir: Path | None,
    on_gpu: bool,
    can_compile: bool,
) -> RunPlan:
    """`steps`: the length of the run, if it is known. `can_compile`: whether this process could."""
    run = _Run(model, hardware, group, run_dir)
    # A node may lack triton; then nobody compiles.
    can_compile = run.all(can_compile)
    if on_gpu:
        found = _on_gpu(config, run, steps, can_compile=can_compile)
    else:
        found = _on_cpu(config, run, can_compile=can_compile)
    if steps is not None and found.first_compiled_step > max(1, steps):
        # The run ends before that. plan.json keeps the step for a resume with more of them.
        return found._replace(first_compiled_step=0)
    return found


def programs_of(config: TrainConfig, model: Model, found: Plan) -> str:
    """What the compiled programs of a run depend on, as far as it is known before the first step."""
    assert found.placement is not None
    fields = {"batch_size", "method", "lora", "precision", "optimizer", "deterministic"}
    asked = config.model_dump_json(include=fields)
    blocks = [block.model_dump() for block in found.placement.blocks()]
    chunk = found.placement.loss_chunk_tokens
    return json.dumps([asked, config.context_length, config.data.kind, repr(model.shape), blocks, chunk])


def _on_cpu(config: TrainConfig, run: _Run, *, can_compile: bool) -> RunPlan:
    """Compiling for a CPU takes as long as many steps, which need not wait for it."""
    in_background = can_compile and config.method != "qlora"
    asked = config
    if in_background or not can_compile:
        # Layers that are not compiled keep more activations: the plan must know.
        config = config.model_copy(update={"compile": "off"})
    config, found = run.agreed_plan(config)
    if found.executor == "sharded" or not in_background:
        # Steps of a sharded model do wait.
        return RunPlan(config, found, int(can_compile))
    chosen = compiled_from_step(asked, found.step_seconds, on_gpu=False)
    return RunPlan(config, found, _kept_step(run, found, chosen) or 0)


def _on_gpu(config: TrainConfig, run: _Run, steps: int | None, *, can_compile: bool) -> RunPlan:
    """Compiled before the first step, beside the first steps, or never."""
    eager = config.model_copy(update={"compile": "off"})
    config, found = run.agreed_plan(config if can_compile else eager)
    if not can_compile or steps is None:
        return RunPlan(config, _with_kept_placement(config, found, run), int(can_compile))
    eager = eager.model_copy(update={"executor": found.executor})
    try:
        without: Plan | None = run.plan(eager)
    except DoesNotFit:
        without = None
    can_switch = run.all(without is not None and _can_switch(without, found))
    if not run.all(without is not None):
        without = None
    choice = CompileChoice(
        steps=steps,
        compiled_seconds=found.step_seconds,
        eager_seconds=None if without is None else without.step_seconds,
        # A repeated deterministic run must not depend on what earlier runs have compiled.
        can_switch=can_switch and config.method != "qlora" and not config.deterministic,
        is_kept=not config.deterministic and programs_are_kept(programs_of(config, run.model, found)),
        must_compile=config.compile == "on",
    )
    first = _kept_step(run, found, choice.first_step(), None if config.deterministic else steps) or 0
    if without is not None and (first == 0 or (first > 1 and choice.can_switch)):
        config, found = eager, without
    elif first != 1:
        # Chosen on another machine; here the run must be compiled from its first step on.
        first = 1
    return RunPlan(config, _with_kept_placement(config, found, run), first)


def _can_switch(eager: Plan, compiled: Plan) -> bool:
    """One placement serves both, and there is room for the process that compiles."""
    assert eager.placement is not None
    assert compiled.placement is not None
    same = compiled.executor == "block" and _is_like(eager.placement, compiled.placement)
    gpu_room = eager.memory_limit_bytes - eager.memory_total_bytes
    host_room = 0 if eager.host is None else eager.host.limit_bytes - eager.host.total
    return same and gpu_room >= costs.COMPILER_GPU_BYTES and host_room >= costs.COMPILER_HOST_BYTES


def _is_like(one: Placement, other: Placement) -> bool:
    return one.cuda_graph == other.cuda_graph and list(one.blocks()) == list(other.blocks())


def _kept_step(run: _Run, found: Plan, chosen: int | None, steps: int | None = None) -> int | None:
    """The step of plan.json; one that was chosen here is written there, for the attempts after this one.

    With `steps`, "never" counts only while the run is no longer than it was when that was chosen.
    """
    if not run.group.leads:
        return run.group.agree(None)
    stored = _stored(run.run_dir)
    kept = stored.get("compiled_from_step")
    # A plan for a CPU says nothing about a GPU.
    is_for_this = stored.get("device", found.device) == found.device
    before = stored.get("steps")
    is_longer = kept == 0 and steps is not None and type(before) is int and before < steps
    if is_for_this and type(kept) is int and kept >= 0 and not is_longer:
        chosen = kept
    elif run.run_dir is not None:
        kept_plan = stored or found.model_dump(mode="json")
        length = {} if steps is None else {"steps": steps}
        _write(run.run_dir, kept_plan | length | {"compiled_from_step": chosen})
    return run.group.agree(chosen)


def _with_kept_placement(config: TrainConfig, found: Plan, run: _Run) -> Plan:
    """For a deterministic run on a GPU the placement of its first attempt, where that fits.

    CPU and GPU round updates differently, and which of them updates a layer depends on measured speeds.
    """
    if not config.deterministic or found.executor != "block":
        return found
    kept = run.group.agree(_kept_placement(found, run.run_dir) if run.group.leads else None)
    if kept is None or len(list(kept.blocks())) != len(run.model.blocks.blocks):
        return found
    again = predict(config, run.hardware, kept, shape=run.model.shape)
    memories = [each for each in (again.memory, again.host) if each is not None]
    return again if all(each.total <= each.limit_bytes for each in memories) else found


def _kept_placement(found: Plan, run_dir: Path | None) -> Placement | None:
    """The placement of the attempt before this one; that of the first attempt is written down.

    `made_by_run` tells it from the plan that was made before the run started, perhaps on another machine.
    """
    stored = _stored(run_dir)
    if stored.get("made_by_run"):
        with suppress(ValidationError):
            return Plan.model_validate(stored).placement
    if run_dir is not None:
        own = found.model_dump(mode="json") | {"made_by_run": True}
        _write(run_dir, own | {"compiled_from_step": stored.get("compiled_from_step")})
    return found.placement


def _stored(run_dir: Path | None) -> dict[str, Any]:
    """What plan.json holds; a file that cannot be read keeps nothing."""
    if run_dir is None:
        return {}
    with suppress(InputError, OSError, UnicodeDecodeError):
        return read_json_object(run_dir / "plan.json") or {}
    return {}


def _write(run_dir: Path, stored: dict[str, Any]) -> None:
    replace_file(run_dir / "plan.json", json.dumps(stored, indent=2) + "\n")
