"""Offers: what a job costs where, in parts and as a range; what is not offered says why."""

from datetime import UTC, date, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpubloom.offers import (
    Constraints,
    Need,
    Offer,
    Offers,
    PriceRow,
    is_named,
    local_rows,
    offers,
    shipped_prices,
)
from gpubloom.offers.prices import ProviderFacts
from gpubloom.plan import Hardware
from gpubloom.plan.hardware import GPU_KINDS
from gpubloom.scripts import detect
from tests.effort import calls_of
from tests.errors import raises

NOW = datetime(2026, 11, 15, 12, tzinfo=UTC)
ALL = Constraints(engines=frozenset({"skypilot"}))


def ask(need: Need, *fresh: PriceRow, **constraints: Any) -> Offers:
    return offers(
        need, prices=shipped_prices().with_rows(fresh), now=NOW, constraints=Constraints(**constraints)
    )


def one(found: Offers, provider: str, gpu: str, kind: str | None = None) -> Offer:
    [offer] = [
        each
        for each in found.offers
        if (each.provider, each.gpu) == (provider, gpu) and kind in (None, each.kind)
    ]
    return offer


def why_not(found: Offers, provider: str, gpu: str) -> str:
    return next(each.reason for each in found.excluded if (each.provider, each.gpu) == (provider, gpu))


def fresh(**changes: Any) -> PriceRow:
    return PriceRow.model_validate(
        {
            "provider": "lambda",
            "gpu": "A10",
            "memory_gb": 24,
            "kind": "on_demand",
            "hourly": 1.0,
            "source": "a live API",
            "read_on": date(2026, 11, 15),
            **changes,
        }
    )


def test_a_service_that_tells_its_regions_apart_is_offered_once_and_by_what_it_says_of_the_region() -> None:
    rows = (fresh(availability="immediate"), fresh(region="us", availability="immediate"))
    need = Need.of(16, 1)
    assert one(ask(need, *rows), "lambda", "A10").region is None
    assert one(ask(need, *rows, region="us"), "lambda", "A10").region == "us"
    assert "in us, not in eu" in why_not(ask(need, *rows, region="eu"), "lambda", "A10")
    # What was said of a region long ago does not outweigh what is said of all of them today.
    old = fresh(region="us", read_on=date(2026, 1, 1), hourly=9.0)
    assert one(ask(need, rows[0], old, region="us"), "lambda", "A10").hourly.likely == 1.0


def test_a_cost_is_the_sum_of_its_parts_and_a_range() -> None:
    found = offers(Need.of(16, 8), prices=shipped_prices(), now=NOW, constraints=ALL)
    assert len(found.offers) > 30
    for offer in found.offers:
        cost = offer.cost
        parts = (cost.compute, cost.storage, cost.network, cost.start_up)
        assert cost.total.likely == pytest.approx(sum(part.likely for part in parts))
        for span in (*parts, cost.total, offer.hours, offer.wait_hours):
            assert 0 <= span.low <= span.likely <= span.high


@given(
    memory=st.floats(0, 200),
    hours=st.floats(0, 100_000),
    longer=st.floats(1, 5),
    reference=st.sampled_from(list(GPU_KINDS)),
    gpus=st.integers(1, 8),
    data=st.floats(0, 10_000),
    region=st.sampled_from([None, "us", "eu"]),
)
@settings(max_examples=40, deadline=None)
def test_any_need_is_priced_and_more_hours_never_cost_less(
    memory: float, hours: float, longer: float, reference: str, gpus: int, data: float, region: str | None
) -> None:
    def priced(length: float) -> dict[object, Offer]:
        need = Need.of(memory, length, reference_gpu=reference, gpus=gpus, data_gb=data)
        asked = Constraints(engines=frozenset({"skypilot"}), region=region)
        found = offers(need, prices=shipped_prices(), now=NOW, constraints=asked)
        return {(offer.provider, offer.gpu, offer.gpus, offer.kind): offer for offer in found.offers}

    short, long = priced(hours), priced(hours * longer)
    assert short.keys() == long.keys()
    for key, offer in short.items():
        assert offer.cost.total.likely <= long[key].cost.total.likely * (1 + 1e-9)
        assert 0 <= offer.cost.total.low <= offer.cost.total.high < 1e12


def test_a_machine_that_is_billed_by_the_minute_costs_its_hours_times_its_rate() -> None:
    need = Need.of(20, 10, reference_gpu="A10", data_gb=0)
    offer = one(ask(need, fresh()), "lambda", "A10")
    assert offer.hours.likely == 10
    # Ten hours, and five minutes of starting.
    assert offer.cost.compute.likely == pytest.approx(10, rel=0.01)
    assert offer.cost.start_up.likely == pytest.approx(5 / 60, rel=0.01)
    assert not offer.stale
    assert "price" not in offer.assumed


def test_a_faster_gpu_takes_less_time_but_not_as_much_less_as_its_data_sheet_says() -> None:
    found = ask(Need.of(20, 10, reference_gpu="A10"))
    hours = {offer.gpu: offer.hours.likely for offer in found.offers if offer.provider == "lambda"}
    assert hours["A10"] > hours["RTX A6000"] > hours["A100 40GB"] > hours["H100"] > hours["B200"]
    assert hours["H100"] > 10 / (989 / 125)


def test_an_hour_that_is_begun_is_paid_where_hours_are_billed() -> None:
    need = Need.of(12, 1.01, reference_gpu="RTX A4000", data_gb=0, disk_gb=0)
    assert one(ask(need), "paperspace", "RTX A4000").cost.total.likely == pytest.approx(2 * 0.76, rel=0.05)


def test_a_run_past_a_days_limit_is_relaunched_and_that_is_counted() -> None:
    short = one(ask(Need.of(20, 20, reference_gpu="A10")), "modal", "A10")
    long = one(ask(Need.of(20, 60, reference_gpu="A10")), "modal", "A10")
    assert (short.relaunches, long.relaunches) == (0, 2)
    assert long.hours.likely > 60
    assert long.cost.start_up.likely == pytest.approx(3 * short.cost.start_up.likely, rel=0.01)
    assert any("restarted 2 times" in feature for feature in long.features)


def test_a_script_that_cannot_resume_is_not_sent_where_runs_are_cut() -> None:
    found = ask(Need.of(20, 60, reference_gpu="A10", resumes=False))
    assert "stops a run after 24 hours" in why_not(found, "modal", "A10")
    assert one(found, "lambda", "A10").relaunches == 0


@pytest.mark.parametrize(
    ("need", "constraints", "provider", "gpu", "reason"),
    [
        (Need.of(30, 2), {}, "modal", "L4", "L4 has 24 GB of memory; the job needs about 30 GB."),
        (Need.of(10, 2, bf16=True), {}, "modal", "T4", "bfloat16"),
        (Need.of(10, 2, gpus=4), {}, "paperspace", "H100", "needs 4 GPUs in one machine; this machine has 1"),
        (Need.of(10, 2, multi_node=True), {}, "modal", "H100", "several machines"),
        (Need.of(10, 2), {}, "vast", "H100", "through SkyPilot, which is not set up"),
        (Need.of(10, 2), {"providers": frozenset({"modal"})}, "lambda", "A10", "not one of the providers"),
        (Need.of(10, 2), {"gpus": frozenset({"H100"})}, "lambda", "A10", "not one of the GPUs"),
        (Need.of(10, 2), {"region": "asia"}, "paperspace", "H100", "offers this GPU in us, eu, not in asia"),
        (Need.of(10, 2), {"max_hourly": 2}, "modal", "H100", "more than your limit of \\$2.00"),
        (
            Need.of(10, 9),
            {"max_cost": 1},
            "lambda",
            "A10",
            "would cost about \\$.*, more than your limit of \\$1.00",
        ),
        (
            Need.of(10, 9),
            {"max_hours": 3},
            "modal",
            "T4",
            "would take about 9.0 hours, more than your limit of 3",
        ),
        (
            Need.of(10, 9),
            {"max_cost": 1, "credits": {"lambda": 2.0}},
            "lambda",
            "A10",
            "would cost about \\$.* after your credit, more than your limit of \\$1.00",
        ),
    ],
)
def test_what_is_not_offered_says_why(
    need: Need, constraints: dict[str, Any], provider: str, gpu: str, reason: str
) -> None:
    found = ask(need, **constraints)
    with pytest.raises(ValueError, match=reason):
        raise ValueError(why_not(found, provider, gpu))
    assert len(found.offers) + len(found.excluded) == len(shipped_prices().rows)


def test_what_a_service_says_it_has_not_is_not_offered() -> None:
    found = ask(Need.of(10, 2), fresh(availability="unavailable"))
    assert "has no such machine available" in why_not(found, "lambda", "A10")
    there = one(ask(Need.of(10, 2), fresh(availability="immediate")), "lambda", "A10")
    asked = one(ask(Need.of(10, 2)), "lambda", "A10")
    assert (there.availability, asked.availability) == ("immediate", "unknown")
    assert there.wait_hours.likely < asked.wait_hours.likely


def test_several_gpus_cost_several_times_as_much_and_idle_ones_are_named() -> None:
    found = ask(Need.of(70, 4, gpus=4))
    assert one(found, "modal", "H100").hourly.likely == pytest.approx(4 * (3.95 + 0.48), rel=0.01)
    eight = next(offer for offer in found.offers if (offer.provider, offer.gpus) == ("lambda", 8))
    assert "4 of the 8 GPUs would be idle and still billed." in eight.cautions


def test_no_more_gpus_are_offered_than_one_machine_of_that_kind_has() -> None:
    # Modal gives a container up to 8 GPUs, but at most 4 A10.
    assert one(ask(Need.of(16, 1, gpus=4)), "modal", "A10").gpus == 4
    eight = {offer.gpu for offer in ask(Need.of(16, 1, gpus=8)).offers if offer.provider == "modal"}
    assert "L4" in eight
    assert "A10" not in eight


def test_cores_and_memory_that_are_billed_besides_are_counted_for_each_gpu() -> None:
    # A sandbox at Modal asks for cores and memory for each of its GPUs, and pays for them even if they idle.
    hourly = {gpus: one(ask(Need.of(16, 1, gpus=gpus)), "modal", "H100").hourly for gpus in (1, 8)}
    assert hourly[8].likely == pytest.approx(8 * hourly[1].likely)
    [row] = [row for row in shipped_prices().rows if (row.provider, row.gpu) == ("modal", "H100")]
    # Two cores and 4 GB at what Modal charges for sandboxes.
    asked = 2 * 0.00003942 * 3600 + 4 * 0.00000672 * 3600
    assert hourly[1].low >= row.hourly + asked - 0.005


def test_a_region_costs_more_where_choosing_one_does() -> None:
    need = Need.of(20, 4)
    somewhere, europe = (one(ask(need, region=region), "modal", "L4") for region in (None, "eu"))
    assert europe.hourly.low == pytest.approx(1.5 * somewhere.hourly.low)
    assert europe.hourly.high == pytest.approx(1.75 * somewhere.hourly.high)


def test_a_row_of_one_region_is_offered_there_only() -> None:
    row = fresh(region="us-west-1")
    assert any(each.region == "us-west-1" for each in ask(Need.of(20, 4), row, region="us").offers)
    found = ask(Need.of(20, 4), row, region="asia")
    assert not any(each.region == "us-west-1" for each in found.offers)


def test_old_and_assumed_prices_are_marked() -> None:
    found = ask(Need.of(10, 2))
    old = one(found, "paperspace", "RTX A4000")
    assert old.stale
    assert "The price is from 01 September 2025 and may have changed." in old.cautions
    guessed = one(found, "modal", "A10")
    assert "price" in guessed.assumed
    assert "The price is an assumption: no price list confirms it." in guessed.cautions


def test_what_was_assumed_of_a_service_is_named_in_words() -> None:
    named = {name for offer in ask(Need.of(10, 2)).offers for name in offer.assumed}
    assert {"startup time", "disk price", "network price"} <= named
    fields = {name.replace("_", " ") for name in ProviderFacts.model_fields if name.count("_")}
    assert named.isdisjoint(fields)


def test_this_machine_is_offered_for_nothing() -> None:
    rows = local_rows(Hardware.parse("2x RTX 4090, 64 GB host"), NOW)
    assert [row.gpus for row in rows] == [1, 2]
    found = ask(Need.of(20, 4), *rows)
    local = next(offer for offer in found.offers if offer.provider == "local")
    assert local.cost.total.high == 0
    assert found.choice is not None
    assert found.choice.offer.provider == "local"
    assert local_rows(Hardware.parse("64 GB host, 8 cores"), NOW) == ()


def test_values_that_were_assumed_make_ranges_wider() -> None:
    sure = detect("import torch\nmodel = torch.nn.Linear(8, 8).cuda()\n")
    need = Need.from_requirements(sure)
    assert "hours" in need.assumed
    assert need.hours.low < need.hours.likely < need.hours.high
    assert need.memory_gb.high > need.memory_gb.likely
    found = ask(need)
    assert found.choice is not None
    assert "hours" in found.choice.offer.assumed
    stated = ask(Need.of(need.memory_gb.likely, need.hours.likely, reference_gpu=need.reference_gpu))
    assert stated.choice is not None
    assert "hours" not in stated.choice.offer.assumed


def test_operations_become_hours_by_what_scripts_reach_of_a_gpu() -> None:
    need = Need.of(20, operations=125e12 * 3600, reference_gpu="A10")
    assert need.hours.likely == pytest.approx(1 / 0.3)
    assert need.hours.low < need.hours.likely < need.hours.high
    with raises(ValueError, code="need_without_duration"):
        Need.of(20)
    with raises(ValueError, code="unknown_gpu"):
        Need.of(20, 1, reference_gpu="Voodoo")


def test_all_offers_take_a_fraction_of_200_ms() -> None:
    """In calls: a slow core makes some three million a second."""

    def answer() -> None:
        offers(Need.of(8, 2), prices=shipped_prices(), now=NOW, constraints=ALL)

    answer()
    assert calls_of(answer) < 100_000


@pytest.mark.parametrize(
    ("gpu", "written", "same"),
    [
        ("A100 80GB", "A100", True),
        ("A100 80GB", "a100 80gb", True),
        ("A100 80GB", "A100 40GB", False),
        ("A10", "NVIDIA A10", True),
        ("A100 40GB", "A10", False),
        ("H100 PCIe", "H100", False),
        ("RTX 6000 Ada", "RTX 6000", False),
    ],
)
def test_a_gpu_is_found_by_the_names_that_people_write(gpu: str, written: str, same: bool) -> None:
    assert is_named(gpu, written) is same
