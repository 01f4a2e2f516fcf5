"""A server that sleeps loses no work: each row of the table of losses, with the clocks in our hands."""

from pathlib import Path

import pytest

from gpubloom.agent import ExitRecord
from gpubloom.agent.files import AgentFiles
from gpubloom.storage import Store
from gpubloom.storage.mailbox import SLOT_LIFE_SECONDS, SLOTS, Mailbox
from gpubloom.traincard.sync.accepted import Limits
from tests.storage.instances import content
from tests.storage.test_receiver import LAYOUT, Both
from tests.traincard_mirror.conftest import S3Server

pytest.importorskip("obstore")
pytestmark = pytest.mark.xdist_group("s3")

HOUR = 3600.0
DAY = 24 * HOUR


class Sleeping(Both):
    """The receiver does nothing unless a test calls it; the uploader takes its turns by the clock."""

    def trains(self, seconds: float, *, says_every: float) -> None:
        """Let the training write a line now and then, and the uploader do what it does meanwhile."""
        until = self.now + seconds
        while self.now < until:
            self.says(f"at {self.now:.0f}\n")
            step = min(says_every, until - self.now)
            end = self.now + step
            while self.now < end:
                self.uploader.turn(False)
                # One turn for each moment at which it could act: its own pauses are shorter.
                self.now = min(end, self.now + max(self.uploader.pause, step / 4))

    def ends(self) -> None:
        """The training ends; its uploader delivers all it can within its hour."""
        record = ExitRecord(1, 0, None, "ended", self.now - 10, self.now, 0)
        path = AgentFiles(self.there).exit(1)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(record.to_json())
        self.turns(HOUR, ended=True)

    def wakes(self) -> str:
        """The server is back: another receiver, which knows only what is stored."""
        self._mailbox = Mailbox(self.store, LAYOUT, clock=self.clock)
        self.receiver = self.new_receiver()
        while (arrival := self.receiver.once()).news:
            pass
        return arrival.state


@pytest.fixture
def both(store: Store, tmp_path: Path) -> Sleeping:
    return Sleeping(store, tmp_path)


@pytest.mark.long
def test_a_job_that_ends_while_the_server_sleeps_for_hours_is_whole_when_it_wakes(both: Sleeping) -> None:
    """Row: job ends while the server sleeps > 1.5 h. It cost the whole run, paid twice."""
    both.trains(60, says_every=3)
    assert both.receiver.once().state == "running"
    weights = both.there / "model/weights.bin"
    both.trains(5 * HOUR, says_every=300)
    weights.parent.mkdir()
    weights.write_bytes(bytes(range(256)) * 200_000)
    both.ends()
    assert both.uploader.turn(True), "the agent has delivered everything and may end"
    both.now += 40 * HOUR
    assert both.wakes() == "ended"
    assert content(both.mine) == content(both.there)


@pytest.mark.long
def test_a_server_away_for_six_days_gets_everything_and_the_slots_last(both: Sleeping) -> None:
    """Row: server away > 24 h. It cost everything since about hour 1."""
    both.trains(60, says_every=3)
    both.receiver.once()
    checkpoint = both.there / "checkpoints/step-00000010/model.bin"
    checkpoint.parent.mkdir(parents=True)
    checkpoint.write_bytes(b"w" * 50_000_000)
    # Twenty minutes at the usual pace use up half of the slots; a simulated week follows in coarse steps.
    both.trains(0.5 * HOUR, says_every=3)
    both.trains(6 * DAY, says_every=0.25 * HOUR)
    used = len(both.store.sizes(LAYOUT.batches))
    assert used < SLOTS - SLOTS // 4, "a quarter is left for the end"
    both.ends()
    assert both.wakes() == "ended"
    assert content(both.mine) == content(both.there)
    assert (both.mine / "checkpoints/step-00000010/model.bin").read_bytes() == b"w" * 50_000_000


@pytest.mark.long
def test_what_a_lost_machine_had_not_sent_is_a_twentieth_of_the_sleep(both: Sleeping) -> None:
    """The worst loss of a machine that dies while the server sleeps is bounded."""
    both.trains(0.5 * HOUR, says_every=3)
    began = both.now
    both.trains(2 * DAY, says_every=0.25 * HOUR)
    slept = both.now - began
    assert both.wakes() == "running"
    last = float(both.arrived().splitlines()[-1].removeprefix("at "))
    assert both.now - last <= 0.05 * slept + 0.5 * HOUR + 60


@pytest.mark.long
def test_after_it_wakes_the_machine_reports_at_its_usual_pace_within_a_minute(both: Sleeping) -> None:
    both.trains(0.5 * HOUR, says_every=3)
    both.trains(1 * DAY, says_every=0.5 * HOUR)
    both.wakes()
    # It looks into the mailbox every minute, finds new addresses and stops merging.
    both.trains(90, says_every=3)
    assert both.receiver.once().state == "running"
    assert float(both.arrived().splitlines()[-1].removeprefix("at ")) > both.now - 15


@pytest.mark.long
def test_merged_batches_are_small_enough_for_the_receiver(store: Store, tmp_path: Path) -> None:
    both = Sleeping(store, tmp_path, slots=64)
    both.trains(120, says_every=3)
    assert both.uploader._outbox.is_short
    weights = both.there / "model/weights.bin"
    weights.parent.mkdir()
    with weights.open("wb") as file:
        file.truncate(150 << 20)
    both.trains(300, says_every=30)
    sizes = both.store.sizes(LAYOUT.batches)
    assert 64 << 20 < max(sizes.values()) < Limits().batch_bytes
    assert both.wakes() == "running"
    assert (both.mine / "model/weights.bin").stat().st_size == 150 << 20


def test_addresses_live_a_week_and_those_of_a_busy_mailbox_are_never_half_a_day_old(
    store: Store, tmp_path: Path
) -> None:
    moment = [0.0]
    mailbox = Mailbox(store, LAYOUT, clock=lambda: moment[0])
    assert SLOT_LIFE_SECONDS == 7 * DAY
    mailbox.write(1)
    moment[0] = 5 * HOUR
    assert not mailbox.renew(2)
    moment[0] = 6 * HOUR
    assert mailbox.renew(2)
    assert b"X-Amz-Expires=604800" in (store.get(LAYOUT.mailbox) or b"")


@pytest.mark.long
def test_a_machine_without_network_for_minutes_is_silent_and_comes_back(
    both: Sleeping, bucket: S3Server
) -> None:
    """Row: machine cannot reach the bucket > 90 s. What the worker then does: test_silent_machine."""
    both.trains(60, says_every=3)
    assert both.receiver.once().state == "running"
    both.wire.is_cut = True
    states = []
    for _ in range(24):
        both.trains(25, says_every=5)
        states.append(both.receiver.once().state)
    assert (states[0], states[-1]) == ("running", "silent")
    both.wire.is_cut = False
    both.trains(60, says_every=5)
    assert both.receiver.once().state == "running"
    assert both.arrived() in content(both.there)["logs/output.log"].decode()
