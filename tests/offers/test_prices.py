"""The price table: every row says where and when it was read; the newest wins; old ones are marked."""

import json
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from gpubloom.offers import PriceRow, PricesProblem, PriceTable, in_force, load_prices, merge, shipped_prices
from gpubloom.plan.hardware import kind_of
from tests.errors import raises

NOW = datetime(2026, 11, 15, 12, tzinfo=UTC)


def row(**changes: object) -> PriceRow:
    return PriceRow.model_validate(
        {
            "provider": "modal",
            "gpu": "T4",
            "memory_gb": 16,
            "kind": "per_second",
            "hourly": 0.5,
            "source": "a test",
            "read_on": date(2026, 11, 1),
            **changes,
        }
    )


def test_every_shipped_row_is_of_a_gpu_whose_speed_is_known_and_says_where_it_was_read() -> None:
    table = shipped_prices()
    assert len({each.key for each in table.rows}) == len(table.rows), "two rows for one thing"
    for each in table.rows:
        assert kind_of(each.gpu) is not None, each.gpu
        assert len(each.source.split()) >= 3, each.source
        assert each.read_on <= NOW.date()
    assert {"modal", "lambda", "paperspace", "replicate", "colab"} <= {each.provider for each in table.rows}


def test_prices_that_were_read_nowhere_are_assumed() -> None:
    assumed = {(each.provider, each.gpu) for each in shipped_prices().rows if each.assumed}
    assert {("modal", "A10"), ("modal", "A100 40GB"), ("modal", "H200"), ("colab", "T4")} <= assumed
    assert not any(each.assumed for each in shipped_prices().rows if each.provider == "lambda")


def test_a_price_is_stale_after_thirty_days() -> None:
    read = row()
    assert not read.stale(NOW)
    assert not read.stale(datetime(2026, 12, 1, tzinfo=UTC))
    assert read.stale(datetime(2026, 12, 2, tzinfo=UTC))


def test_the_newest_price_wins_whichever_side_it_is_on() -> None:
    old, new = row(hourly=0.5), row(hourly=0.7, read_on=date(2026, 11, 10))
    assert merge([old], [new]) == (new,)
    assert merge([new], [old]) == (new,)
    same_day = row(hourly=0.9)
    assert merge([old], [same_day]) == (same_day,), "read on one day: the fresh one"
    other = row(gpu="L4", memory_gb=24)
    assert set(merge([old], [other])) == {old, other}


def test_an_announced_price_waits_for_its_day() -> None:
    today = row(hourly=0.5)
    announced = row(hourly=0.8, effective_from=date(2026, 11, 16))
    both = merge([today], [announced])
    assert in_force(both, NOW) == (today,)
    assert in_force(both, NOW + timedelta(days=1)) == (announced,)
    read_later = row(hourly=0.6, read_on=date(2026, 12, 1))
    assert in_force(merge(both, [read_later]), NOW + timedelta(days=30)) == (read_later,)


@given(st.lists(st.tuples(st.integers(1, 28), st.floats(0, 100)), min_size=1, max_size=8))
@settings(max_examples=50, deadline=None)
def test_merging_keeps_one_row_of_the_last_day_in_any_order(read: list[tuple[int, float]]) -> None:
    rows = [row(hourly=hourly, read_on=date(2026, 10, day)) for day, hourly in read]
    [kept] = merge(rows[:1], rows[1:])
    assert kept.read_on.day == max(day for day, _ in read)


def test_a_file_of_ones_own_goes_over_the_shipped_table(tmp_path: Path) -> None:
    own = tmp_path / "prices.json"
    agreed = row(provider="lambda", gpu="A10", memory_gb=24, kind="on_demand", hourly=0.9)
    own.write_text(json.dumps({"rows": [json.loads(agreed.model_dump_json())]}))
    [found] = [each for each in load_prices(own).rows if (each.provider, each.gpu) == ("lambda", "A10")]
    assert found == agreed
    assert load_prices() is shipped_prices()


@pytest.mark.parametrize(
    ("text", "code", "field"),
    [
        ("{", "not_json", "prices.json"),
        ('{"prices": []}', "prices_invalid", "prices"),
        ('{"rows": [{"provider": "modal"}]}', "prices_invalid", "rows.0.gpu"),
        (row(provider="nobody").model_dump_json(), "prices_invalid", "provider"),
    ],
)
def test_a_file_that_cannot_be_used_says_why(tmp_path: Path, text: str, code: str, field: str) -> None:
    own = tmp_path / "prices.json"
    own.write_text(text)
    with raises(PricesProblem, code=code, match=field):
        load_prices(own)


def test_a_missing_file_and_an_unknown_service_say_so(tmp_path: Path) -> None:
    with raises(PricesProblem, code="unreadable_file"):
        load_prices(tmp_path / "none.json")
    with raises(PricesProblem, code="prices_invalid"):
        shipped_prices().with_rows([row(provider="nobody")])


@pytest.mark.parametrize(
    "change",
    [
        {"hourly": -1},
        {"hourly": float("nan")},
        {"hourly_high": 0.1},
        {"memory_gb": 0},
        {"gpus": 0},
        {"kind": "gift"},
    ],
)
def test_a_price_that_makes_no_sense_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        row(**change)


def test_live_rows_replace_shipped_ones() -> None:
    fresh = row(hourly=9.0, read_on=date(2026, 11, 15))
    table: PriceTable = shipped_prices().with_rows([fresh])
    [found] = [each for each in table.rows if each.key == fresh.key]
    assert found.hourly == 9.0
    assert len(table.rows) == len(shipped_prices().rows)
