"""The choice: the usual service for each kind of work, unless another is clearly better, and always why."""

from datetime import UTC, date, datetime
from typing import Any

import pytest

from gpubloom.offers import Choice, Constraints, Need, PriceRow, offers, shipped_prices

NOW = datetime(2026, 11, 15, 12, tzinfo=UTC)


def chosen(need: Need, *fresh: PriceRow, **constraints: Any) -> Choice:
    found = offers(
        need, prices=shipped_prices().with_rows(fresh), now=NOW, constraints=Constraints(**constraints)
    )
    assert found.choice is not None
    assert found.offers[0] == found.choice.offer
    assert [offer.recommended for offer in found.offers] == [True, *[False] * (len(found.offers) - 1)]
    assert found.choice.offer.reasons == found.choice.reasons != ()
    return found.choice


def lambda_a10(**changes: Any) -> PriceRow:
    return PriceRow.model_validate(
        {
            "provider": "lambda",
            "gpu": "A10",
            "memory_gb": 24,
            "kind": "on_demand",
            "hourly": 1.29,
            "source": "a live API",
            "read_on": date(2026, 11, 15),
            **changes,
        }
    )


# Services whose prices are near each other: RunPod's shipped prices are below all of them.
OTHERS = frozenset({"modal", "lambda", "paperspace", "replicate", "colab"})


@pytest.mark.parametrize(
    ("need", "archetype", "provider", "reason"),
    [
        (Need.of(8, 0.5), "short burst", "modal", "a fast start and billing by the second"),
        (Need.of(15, 0.9), "short burst", "modal", "a fast start and billing by the second"),
        (Need.of(12, 3, interactive=True), "interactive", "colab", "a notebook in the browser"),
        (Need.of(20, 5, interactive=True), "interactive", "colab", "a notebook in the browser"),
        (Need.of(24, 48), "long run", "lambda", "without a time limit"),
        (Need.of(12, 30), "long run", "lambda", "without a time limit"),
        (Need.of(12, 4), "usual run", "runpod", "a good balance"),
        (Need.of(16, 8), "usual run", "runpod", "a good balance"),
    ],
)
def test_each_kind_of_work_goes_to_its_usual_service(
    need: Need, archetype: str, provider: str, reason: str
) -> None:
    choice = chosen(need, providers=OTHERS | {provider})
    assert (choice.archetype, choice.usual, choice.offer.provider) == (archetype, provider, provider)
    assert reason in choice.reasons[0]
    assert "This offer costs " in choice.reasons[1]


def test_a_job_of_a_moment_takes_one_minute() -> None:
    assert "1 minutes" not in " ".join(chosen(Need.of(8, 0.0001)).reasons)


def test_a_service_that_is_clearly_better_is_taken_and_the_reason_says_by_how_much() -> None:
    choice = chosen(Need.of(24, 48), providers=frozenset({"lambda", "runpod"}))
    assert (choice.usual, choice.offer.provider) == ("lambda", "runpod")
    assert "at Lambda, the usual provider for a long job." in choice.reasons[0]
    assert "costs about $" in choice.reasons[0]


def test_a_usual_service_without_anything_that_fits_is_named() -> None:
    choice = chosen(Need.of(70, 5, interactive=True))
    assert choice.offer.provider in {"lambda", "runpod", "paperspace"}
    assert choice.reasons[0] == "The usual provider for interactive work, Colab, has no suitable offer."


def test_a_small_difference_does_not_move_work_from_its_usual_service() -> None:
    need = Need.of(12, 4)
    usual = chosen(need).offer
    cheaper = lambda_a10(hourly=0.9)
    assert chosen(need, cheaper).offer.provider == usual.provider
    assert chosen(need, lambda_a10(hourly=0.2)).offer.provider == "lambda"


def test_work_that_runs_by_itself_is_not_given_to_a_notebook_however_cheap() -> None:
    found = offers(Need.of(12, 4), prices=shipped_prices(), now=NOW)
    free = next(offer for offer in found.offers if offer.kind == "free")
    assert free.cost.total.likely == 0
    assert not free.recommended
    assert any("keep the page open" in caution for caution in free.cautions)
    suited = [offer.unattended for offer in found.offers]
    assert suited == sorted(suited, reverse=True), "what needs a person's hand comes last"


def test_credits_that_are_left_are_spent_first() -> None:
    choice = chosen(Need.of(12, 4), credits={"modal": 25.0})
    assert choice.offer.provider == "modal"
    assert "$25.00 of credits left at Modal" in choice.reasons[0]
    assert any("from your credits at Modal." in reason for reason in choice.reasons)


def test_a_person_in_a_hurry_gets_a_faster_gpu_and_one_short_of_money_a_cheaper_one() -> None:
    need = Need.of(12, 20)
    hurried = chosen(need, priority="time").offer
    thrifty = chosen(need, priority="price").offer
    assert hurried.hours.likely < 0.7 * thrifty.hours.likely
    assert thrifty.cost.total.likely < hurried.cost.total.likely


def test_a_queue_speaks_against_a_service() -> None:
    need = Need.of(24, 4, reference_gpu="A10")
    waiting = chosen(need, lambda_a10(hourly=0.5, availability="queued"), providers=OTHERS).offer.weight
    there = chosen(need, lambda_a10(hourly=0.5, availability="immediate"), providers=OTHERS).offer.weight
    assert there < waiting


def test_a_gpu_that_may_be_too_small_has_to_be_cheaper_to_be_chosen() -> None:
    sure = Need.of(20, 4, reference_gpu="A10")
    wide = Need(memory_gb=type(sure.memory_gb)(18, 20, 40), hours=sure.hours, reference_gpu="A10")
    found = offers(wide, prices=shipped_prices(), now=NOW)
    same = offers(sure, prices=shipped_prices(), now=NOW)
    weight = {
        name: next(o.weight for o in each.offers if (o.provider, o.gpu) == ("modal", "L4"))
        for name, each in (("wide", found), ("sure", same))
    }
    assert weight["wide"] > weight["sure"]
    assert any(
        "The GPU memory may be too small: the job may need 40 GB." in offer.cautions
        for offer in found.offers
        if offer.gpu == "L4"
    )


def test_nothing_is_chosen_where_nothing_fits() -> None:
    found = offers(Need.of(5_000, 4), prices=shipped_prices(), now=NOW)
    assert found.choice is None
    assert found.offers == ()
    assert len(found.excluded) == len(shipped_prices().rows)


def test_the_constraints_of_a_person_come_before_what_is_usual() -> None:
    assert chosen(Need.of(8, 0.5), providers=frozenset({"lambda"})).offer.provider == "lambda"
    assert chosen(Need.of(12, 4), region="asia").offer.provider in {"modal", "lambda"}
