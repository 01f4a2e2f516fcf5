"""Settings with which a run fits a machine that it does not fit as asked, each with its plan.

`refusal` names the one nearest change; a person who chooses wants to see what each kind of change costs.
"""

from pydantic import JsonValue

from gpubloom.plan.config import TrainConfig
from gpubloom.plan.decoder import DecoderShape
from gpubloom.plan.hardware import Hardware
from gpubloom.plan.planner import Plan, Result, plan_on, processes_on, share_of
from gpubloom.plan.refusal import Changes, DoesNotFit, changed, fitting_changes
from gpubloom.plan.request import PlanRequest


class NearestFit(Result):
    """A change that makes a run fit: fields by their path with their new values, and the plan with them."""

    changes: dict[str, JsonValue]
    plan: Plan


def nearest_fits(
    config: TrainConfig,
    hardware: Hardware,
    *,
    tokens_per_epoch: int | None = None,
    shape: DecoderShape | None = None,
    at_most: int = 4,
) -> tuple[NearestFit, ...]:
    """Different kinds of change that make a run fit, the smallest first; none if it fits, or nothing helps.

    Of changes that differ in numbers only the first counts: a batch of 4 makes one of 2 pointless. The same
    for a change that does more than an earlier one.
    """
    processes = processes_on(hardware, config, shape=shape)
    asked_config = config.model_copy(update={"processes": processes}) if processes > 1 else config
    asked = PlanRequest.of(asked_config, share_of(hardware, 1 if config.cluster else processes), shape)
    found: list[NearestFit] = []
    try:
        plan_on(hardware, config, shape=shape)
    except DoesNotFit:
        for changes in fitting_changes(asked):
            if any(_kinds(changes) >= _kinds(each.changes) for each in found):
                continue
            nearest = changed(config, changes)
            assert nearest is not None, "a change that fits is valid"
            found.append(
                NearestFit(
                    changes=changes,
                    plan=plan_on(hardware, nearest, tokens_per_epoch=tokens_per_epoch, shape=shape),
                )
            )
            if len(found) == at_most:
                break
    return tuple(found)


def _kinds(changes: Changes) -> set[tuple[str, str | None]]:
    return {(name, value if isinstance(value, str) else None) for name, value in changes.items()}
