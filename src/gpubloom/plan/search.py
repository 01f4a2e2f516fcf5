"""Finds the fastest placement that fits.

A candidate is described by a few counts: the first `resident` layers have their optimizer state on the
device, the last `kept` keep their activations, `filled` more hold their weights through the step, and
`linked` of those with state on the host are updated through the link, spread evenly. All combinations that
fit without linked layers are judged, apart from those that a lower bound rules out; so more memory never
gives a slower plan.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from gpubloom.plan.memory import PASSING_STATES, Bytes, Residency, device_bytes, host_bytes, loss_bytes
from gpubloom.plan.placement import BlockPlacement, Placement
from gpubloom.plan.timing import Lanes, phases, step_seconds
from gpubloom.plan.workload import Timed, Work

# Sixteenths of the host's layers that are updated through the link instead.
_LINKED_SIXTEENTHS = range(1, 11)
# The part of a step that updates through the link must be able to gain, or they are not looked at.
_WORTH_LINKING = 0.005
CHUNKS = (2_048, 512, 128)
_ENDLESS = 2**62
# Waiting in host memory is worth considering from this many bytes of layer inputs on.
_OFFLOAD_FROM_BYTES = 1_000_000_000


@dataclass(frozen=True)
class MemoryLimits:
    """Bytes that a run may use. On a CPU there is one memory, the host's."""

    device: int
    host: int


class Candidate(NamedTuple):
    """A placement in counts."""

    resident: int
    kept: int = 0
    filled: int = 0
    linked: int = 0
    cast: bool = False
    slots: int = 4
    chunk: int = 2_048
    offload: bool = False
    share: bool = False
    ends_on_host: bool = False
    twice: int = 0


def fits(timed: Timed, at: Residency, limits: MemoryLimits) -> bool:
    work, sums = timed.work, timed.sums
    device = device_bytes(work, sums, at).total
    host = host_bytes(work, at).total
    if not work.on_gpu:
        return device + host <= limits.host
    return device <= limits.device and host <= limits.host


def residency(timed: Timed, at: Candidate) -> Residency:
    """The sums of a candidate, from running sums."""
    work, sums = timed.work, timed.sums
    count, trained, weights = work.count, sums.trained, sums.weights
    first_kept = count - at.kept
    if work.full:
        # Layers from here on hold their weights through the step, though their state is on the host.
        first_filled = max(at.resident, first_kept - at.filled)
        uncast = min(at.resident, first_kept)
        own = weights[count] - weights[max(first_filled, at.resident)]
        filled = own
        master_only = work.compute_bytes == 4
        if not master_only:
            own += weights[at.resident] - weights[uncast] + (0 if at.cast else weights[uncast])
        through_link = _linked(work, at)
        linked = sum(work.trained[index] for index in through_link)
        linked_moments = sum(work.moments[index] for index in through_link)
        device_state, device_moments = trained[at.resident], sums.moments[at.resident]
        streamed = weights[first_filled] - weights[at.resident]
        cast = weights[uncast] if at.cast and not master_only else 0
    else:
        first_filled = max(0, first_kept - at.filled)
        own, filled, linked, cast = weights[count] - weights[first_filled], 0, 0, 0
        device_state, streamed = trained[count], weights[first_filled]
        device_moments, linked_moments = sums.moments[count], 0
    return Residency(
        device_state=device_state,
        host_state=trained[count] - device_state - linked,
        link_state=linked,
        device_moments=device_moments,
        host_moments=sums.moments[count] - device_moments - linked_moments,
        link_moments=linked_moments,
        device_weights=own,
        filled_weights=filled,
        streamed_weights=streamed,
        cast_weights=cast,
        kept=sums.kept[count] - sums.kept[first_kept],
        recomputed=first_kept,
        recompute_seconds=sums.recompute[first_kept],
        slots=at.slots,
        chunk=at.chunk,
        offload=at.offload,
        share=at.share,
        ends_on_host=at.ends_on_host,
        first_waits=work.full and at.resident == 0 and 0 not in _linked(work, at),
        twice=at.twice,
        twice_state=trained[count] - trained[count - at.twice],
    )


def placement(work: Work, at: Candidate) -> Placement:
    """The candidate block by block."""
    count = work.count
    first_kept = count - at.kept
    linked = set(_linked(work, at)) if work.full else set()
    layers = []
    for index in range(count):
        keep = index >= first_kept
        if not work.full:
            held = index >= first_kept - at.filled
            layers.append(BlockPlacement(weights="device" if held else "stream", keep=keep))
        elif index < at.resident:
            cast = at.cast and not keep and work.compute_bytes < 4
            layers.append(BlockPlacement(weights="cast" if cast else "device", keep=keep))
        else:
            held = index >= first_kept - at.filled
            layers.append(
                BlockPlacement(
                    state="link" if index in linked else "host",
                    weights="device" if held else "stream",
                    keep=keep,
                )
            )
    ends = BlockPlacement(state="host" if at.ends_on_host and work.full else "device")
    return Placement(
        embedding=ends,
        layers=tuple(layers),
        head=None if work.shape.tied else ends,
        slots=at.slots,
        offload_inputs=at.offload and first_kept > 0,
        loss_chunk_tokens=at.chunk,
        share_gradients=at.share,
        gradients_twice=at.twice,
    )


def _linked(work: Work, at: Candidate) -> list[int]:
    """All that are not resident, where the host cannot update any."""
    linked = work.count - at.resident if work.needs_gpu_updates else at.linked
    return linked_layers(at.resident, work.count, linked)


def linked_layers(first: int, count: int, linked: int) -> list[int]:
    """So many of the layers from `first` on, spread evenly, never the first of them when others can be."""
    span = count - first
    return [first + (2 * number + 1) * span // (2 * linked) for number in range(linked)]


class Need(NamedTuple):
    """What a run needs at least."""

    device: int
    host: int
    weights: int
    gradients: int
    optimizer: int
    on_device: Bytes
    # On a CPU there is one memory, and this is all of it.
    on_host: Bytes


def search(timed: Timed, limits: MemoryLimits, mode: str) -> Candidate | None:
    """The fastest candidate that fits; last resorts are taken only when nothing fits without them."""
    for share, ends_on_host in _last_resorts(timed.work, mode):
        start = Candidate(0, share=share, ends_on_host=ends_on_host)
        if found := _Search(timed, limits, mode, start).run():
            return found
    return None


def search_twice(timed: Timed, limits: MemoryLimits, mode: str) -> Candidate | None:
    """The same, where the last layers may compute their gradients twice: as few of them as fit."""
    work = timed.work
    if not work.full or not work.on_gpu or work.needs_gpu_updates or mode == "resident":
        return None
    for ends_on_host in (False, True):
        start = Candidate(0, ends_on_host=ends_on_host)
        if found := _Search(timed, limits, mode, start).run_twice():
            return found
    return None


def possible(timed: Timed, limits: MemoryLimits, mode: str) -> bool:
    """Whether search would find anything."""
    return any(
        _Search(timed, limits, mode, Candidate(0, share=share, ends_on_host=ends_on_host)).frugal()
        for share, ends_on_host in _last_resorts(timed.work, mode)
    )


def least_need(timed: Timed, limits: MemoryLimits, mode: str) -> Need:
    """The least that would have to be there, for a run that does not fit."""
    share, ends_on_host = list(_last_resorts(timed.work, mode))[-1]
    start = Candidate(0, share=share, ends_on_host=ends_on_host)
    endless = MemoryLimits(limits.device, _ENDLESS)
    # As much as fits on the device, so that the host's need is its least; else the device's own least.
    at = _Search(timed, endless, mode, start).frugal() or _Search(
        timed, MemoryLimits(_ENDLESS, _ENDLESS), mode, start
    ).frugal(fewest=True)
    assert at is not None, "without limits everything fits"
    found = residency(timed, at)
    device, host = device_bytes(timed.work, timed.sums, found), host_bytes(timed.work, found)
    both = device.plus(host)
    on_host = host if timed.work.on_gpu else both
    return Need(device.total, on_host.total, both.weights, both.gradients, both.optimizer, device, on_host)


def _last_resorts(work: Work, mode: str) -> Iterator[tuple[bool, bool]]:
    """Gradients in place of compute copies; embedding and head with their state on the host."""
    yield False, False
    if work.full and work.on_gpu and mode != "resident":
        yield False, True
        if work.host_copy:
            yield True, False
            yield True, True


class _Search:
    """One pass over the candidates."""

    def __init__(self, timed: Timed, limits: MemoryLimits, mode: str, start: Candidate) -> None:
        self._timed, self._limits, self._mode, self._start = timed, limits, mode, start
        self._best: Candidate | None = None
        self._seconds = float("inf")

    def run(self) -> Candidate | None:
        for common in self._settings():
            self._over_residents(common)
        return self._best

    def run_twice(self) -> Candidate | None:
        """No layer keeps its activations or holds its weights: it is host memory that is short."""
        for common in self._settings():
            for resident in self._residents(common):
                at = common._replace(resident=resident)
                if (common.cast and resident == 0) or not self._fits(at, host=False):
                    continue
                least, most = 1, self._timed.work.count - resident
                if most < 1 or not self._fits(at._replace(twice=most)):
                    continue
                while least < most:
                    middle = (least + most) // 2
                    if self._fits(at._replace(twice=middle)):
                        most = middle
                    else:
                        least = middle + 1
                at = at._replace(twice=least)
                seconds = step_seconds(self._timed, residency(self._timed, at))
                if seconds < self._seconds:
                    self._best, self._seconds = at, seconds
        return self._best

    def frugal(self, *, fewest: bool = False) -> Candidate | None:
        """The candidate that fits with most layers resident (or fewest) and nothing else on the device."""
        found = []
        for common in self._smallest_settings():
            every = common._replace(filled=self._filled_in(common))
            residents = self._residents(every)
            order = reversed(residents) if fewest else residents
            at = next((at for n in order if self._fits(at := every._replace(resident=n))), None)
            if at is not None:
                found.append(at)
        return min(found, key=self._device_total if fewest else lambda at: -at.resident, default=None)

    def _device_total(self, at: Candidate) -> int:
        timed = self._timed
        return device_bytes(timed.work, timed.sums, residency(timed, at)).total

    def _settings(self) -> Iterator[Candidate]:
        """Those choices that all layers share, the usual ones first."""
        streams = self._mode != "resident" and self._timed.work.on_gpu
        for offload in self._offloads():
            for cast in self._casts():
                for slots in (4, 2) if streams or cast else (4,):
                    for chunk in self._chunks():
                        yield self._start._replace(cast=cast, slots=slots, chunk=chunk, offload=offload)

    def _smallest_settings(self) -> Iterator[Candidate]:
        """Of these, the ones that can need least memory."""
        slots = 2 if self._mode != "resident" and self._timed.work.on_gpu else 4
        chunk = self._chunks()[-1]
        for offload in self._offloads():
            for cast in self._casts():
                yield self._start._replace(cast=cast, slots=slots, chunk=chunk, offload=offload)

    def _offloads(self) -> tuple[bool, ...]:
        work = self._timed.work
        large = work.count * work.input_bytes >= _OFFLOAD_FROM_BYTES
        return (False, True) if work.on_gpu and large else (False,)

    def _casts(self) -> tuple[bool, ...]:
        work = self._timed.work
        possible = work.full and work.on_gpu and work.compute_bytes < 4 and self._mode == "auto"
        return (False, True) if possible else (False,)

    def _chunks(self) -> list[int]:
        """A smaller chunk helps only while the loss is what needs most.

        On a CPU it is always the same one: sums over chunks round differently, and there placements give
        the same bits.
        """
        work = self._timed.work
        if not work.on_gpu:
            return [CHUNKS[0]]
        helps = [loss_bytes(work, larger) > work.working for larger in CHUNKS[:-1]]
        return [CHUNKS[0], *(chunk for chunk, does in zip(CHUNKS[1:], helps, strict=True) if does)]

    def _filled_in(self, common: Candidate) -> int:
        """Frozen weights that must stay on the device."""
        return 0 if self._timed.work.full or self._mode != "resident" else self._timed.work.count

    def _residents(self, common: Candidate) -> range:
        """Most first. More of them need more of the device and less of the host: what fits is one span."""
        count = self._timed.work.count
        if not self._timed.work.full or self._mode == "stream":
            return range(1)
        if self._mode == "resident" or not self._timed.work.on_gpu:
            return range(count, count + 1)
        most = self._most(count, lambda number: common._replace(resident=number), host=False)
        return range(most, -1, -1)

    def _over_residents(self, common: Candidate) -> None:
        common = common._replace(filled=self._filled_in(common))
        for resident in self._residents(common):
            at = common._replace(resident=resident)
            if common.cast and resident == 0:
                continue
            if not self._fits(at):
                if self._fits(at, host=False):
                    # The host is full; with fewer resident layers it has even more to hold.
                    break
                continue
            self._over_linked(at)

    def _over_linked(self, at: Candidate) -> None:
        """The link may take updates off the host, where that can be faster."""
        work = self._timed.work
        # Only of this number of linked layers: with others the host may need less.
        if self._bound(at._replace(kept=work.count)) < self._seconds:
            self._over_kept(at)
        if not work.full or not work.on_gpu or work.needs_gpu_updates:
            return
        free = residency(self._timed, at._replace(filled=work.count, kept=work.count))
        forward, *others = phases(self._timed, free)
        # At best the CPU and the link share the updates so that both end at once, and nothing else waits.
        early = PASSING_STATES * (4 * self._timed.sums.largest_trained + self._timed.sums.largest_moments)
        sent = max(0, 4 * free.host_state + free.host_moments - early) / self._timed.rates.link_both
        both = forward.host + sent
        least = Lanes("forward", forward.compute, host=forward.host * sent / both if both else 0.0)
        if least.seconds + sum(phase.compute for phase in others) >= self._seconds:
            return
        if forward.seconds - least.seconds < _WORTH_LINKING * self._seconds:
            return
        left = work.count - at.resident
        for linked in sorted({left * part // 16 for part in _LINKED_SIXTEENTHS} - {0}):
            candidate = at._replace(linked=linked)
            if self._fits(candidate) and self._bound(candidate._replace(kept=work.count)) < self._seconds:
                self._over_kept(candidate)

    def _over_kept(self, at: Candidate) -> None:
        """From as many kept layers as fit down to where computing again costs more than the best so far."""
        work = self._timed.work
        most = self._most(work.count, lambda number: at._replace(kept=number))
        for kept in range(most, -1, -1):
            candidate = at._replace(kept=kept)
            bound = self._bound(candidate)
            if bound >= self._seconds:
                break
            if candidate.filled == 0 and (self._mode == "auto" or not work.full):
                room = work.count - kept - (at.resident if work.full else 0)
                if room > 0:
                    candidate = self._filled(candidate, room)
            seconds = step_seconds(self._timed, residency(self._timed, candidate))
            if seconds < self._seconds:
                self._best, self._seconds = candidate, seconds
            if seconds <= bound * (1 + 1e-9):
                break

    def _filled(self, at: Candidate, room: int) -> Candidate:
        return at._replace(filled=self._most(room, lambda number: at._replace(filled=number)))

    def _most(self, upper: int, candidate: Callable[[int], Candidate], *, host: bool = True) -> int:
        """The largest count that fits, by halving: memory grows with each of them."""
        # But for the last step, after which there is nothing left to stream and no slots are needed.
        if self._fits(candidate(upper), host=host):
            return upper
        low, high = 0, upper - 1
        while low < high:
            middle = (low + high + 1) // 2
            if self._fits(candidate(middle), host=host):
                low = middle
            else:
                high = middle - 1
        return low

    def _bound(self, at: Candidate) -> float:
        """What the GPU and the host optimizer alone need; weights that are transferred can only add to it."""
        timed = self._timed
        free = residency(timed, at._replace(filled=timed.work.count))
        return step_seconds(timed, free)

    def _fits(self, at: Candidate, *, host: bool = True) -> bool:
        limits = self._limits if host else MemoryLimits(self._limits.device, _ENDLESS)
        return fits(self._timed, residency(self._timed, at), limits)
