from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastci_ml.records.gpu import Attribution, DeviceReading, GpuSample, GpuUsage
from fastci_ml.sources.gpu.usage import measure_usage

PROCESS, DEVICE, UNKNOWN = Attribution.PROCESS, Attribution.DEVICE, Attribution.UNKNOWN
SHARES = {"GPU-a": 1.0, "MIG-b": 2 / 7, "MIG-c": 1 / 7}


def held(uuid: str = "GPU-a", ratio: float | None = 1.0, **fields) -> DeviceReading:
    fields.setdefault("by", UNKNOWN if ratio is None else DEVICE)
    return DeviceReading(uuid=uuid, share=SHARES[uuid], held_ratio=ratio, **fields)


def sample(at_s: float, *readings: DeviceReading, reach_s: float = 1.0) -> GpuSample:
    return GpuSample(at_s=at_s, reach_s=reach_s, readings=readings)


@st.composite
def a_reading(draw, uuid):
    by = draw(st.sampled_from([PROCESS, DEVICE, UNKNOWN]))
    ratio = {
        PROCESS: draw(st.sampled_from([0.0, 0.25, 0.5, 1.0])),
        DEVICE: draw(st.sampled_from([0.0, 1.0])),
        UNKNOWN: None,
    }[by]
    return held(
        uuid,
        ratio,
        by=by,
        holders=frozenset({draw(st.integers(1, 2))}) if by is PROCESS and ratio else frozenset(),
        held_bytes=draw(st.none() | st.integers(0, 100)),
        utilization_ratio=draw(st.none() | st.sampled_from([0.0, 0.5, 1.0])),
    )


@st.composite
def some_samples(draw, can_be_unknown=True):
    uuids = draw(st.sampled_from([("GPU-a",), ("GPU-a", "MIG-b"), ("MIG-b", "MIG-c"), ()]))
    times = draw(st.lists(st.integers(0, 30), max_size=12, unique=True))
    samples = []
    for at_s in times:
        reach_s = draw(st.sampled_from([1.0, 2.5]))
        if can_be_unknown and draw(st.integers(0, 9)) == 0:
            samples.append(GpuSample(at_s=at_s, reach_s=reach_s))
        else:
            samples.append(sample(at_s, *[draw(a_reading(uuid)) for uuid in uuids], reach_s=reach_s))
    return samples


TIMES = st.integers(-2, 33).map(float)


def slow_usage(samples: list[GpuSample], start_s: float, end_s: float) -> float | None:
    """GPU-seconds the obvious way: at each of many moments, what does the nearest sample say?"""
    step_s, total = 0.125, 0.0
    for i in range(round((end_s - start_s) / step_s)):
        moment_s = start_s + (i + 0.5) * step_s
        near = [one for one in samples if abs(one.at_s - moment_s) <= one.reach_s]
        # The nearest of all, if it reaches; a further one that reaches does not speak for this moment.
        nearest = min(samples, key=lambda one: abs(one.at_s - moment_s), default=None)
        if nearest is not None and nearest in near:
            readings = nearest.readings
        else:
            before = max((s for s in samples if s.at_s < moment_s), key=lambda s: s.at_s, default=None)
            after = min((s for s in samples if s.at_s > moment_s), key=lambda s: s.at_s, default=None)
            if before is None or after is None or before.readings is None or after.readings is None:
                return None
            readings = []
            for a, b in zip(before.readings, after.readings, strict=True):
                is_same = a.by is b.by and a.held_ratio == b.held_ratio and a.holders == b.holders
                is_sure = a.by is DEVICE or (a.by is PROCESS and a.held_ratio > 0)
                readings.append(a if is_same and is_sure else held(a.uuid, None))
        if readings is None or any(one.held_ratio is None for one in readings):
            return None
        total += step_s * sum(one.held_ratio * one.share for one in readings)
    return total


@given(some_samples(), TIMES, TIMES)
def test_gpu_seconds_equal_those_of_the_obvious_way(samples, first_s, second_s):
    start_s, end_s = min(first_s, second_s), max(first_s, second_s)
    if start_s == end_s:
        return
    expected = slow_usage(samples, start_s, end_s)
    found = measure_usage(samples, start_s, end_s).gpu_s
    assert found == (None if expected is None else pytest.approx(expected))


@given(some_samples(), st.lists(TIMES, min_size=3, max_size=3))
def test_adjoining_windows_add_up(samples, times):
    start_s, middle_s, end_s = sorted(times)
    left, right = measure_usage(samples, start_s, middle_s), measure_usage(samples, middle_s, end_s)
    whole = measure_usage(samples, start_s, end_s)
    if start_s < middle_s < end_s:
        assert (whole.gpu_s is None) == (left.gpu_s is None or right.gpu_s is None)
        peaks = [one.peak_bytes for one in (left, right) if one.peak_bytes is not None]
        assert whole.peak_bytes == max(peaks, default=None)
    if whole.gpu_s is not None and start_s < middle_s < end_s:
        assert whole.gpu_s == pytest.approx(left.gpu_s + right.gpu_s)
        assert max(left.n_gpus, right.n_gpus) <= whole.n_gpus <= left.n_gpus + right.n_gpus


@given(some_samples(), TIMES, TIMES)
def test_usage_lies_within_the_window_times_the_shares(samples, first_s, second_s):
    start_s, end_s = min(first_s, second_s), max(first_s, second_s)
    usage = measure_usage(samples, start_s, end_s)
    devices = {reading.uuid: reading.share for one in samples for reading in one.readings or ()}
    if usage.gpu_s is not None:
        assert -1e-9 <= usage.gpu_s <= (end_s - start_s) * sum(devices.values()) + 1e-9
        assert 0 <= usage.n_gpus <= len(devices)
    if usage.utilization_ratio is not None:
        assert -1e-9 <= usage.utilization_ratio <= 1 + 1e-9
    assert (usage.n_gpus is None) == (usage.by is UNKNOWN)


@given(some_samples(), TIMES, TIMES, st.randoms(use_true_random=False))
def test_order_of_samples_does_not_matter(samples, first_s, second_s, random):
    # Two of one time as well: what a stepping clock would give.
    samples = samples + [one._replace(readings=None) for one in samples[:1]]
    shuffled = list(samples)
    random.shuffle(shuffled)
    window = min(first_s, second_s), max(first_s, second_s)
    assert measure_usage(shuffled, *window) == measure_usage(samples, *window)


@given(some_samples(can_be_unknown=False), TIMES, TIMES, st.integers(0, 11))
def test_unknown_never_lowers_what_was_held(samples, first_s, second_s, place):
    """Make one sample unknown: the window becomes unknown, or nothing changes."""
    window = min(first_s, second_s), max(first_s, second_s)
    if not samples:
        assert measure_usage(samples, *window) == GpuUsage()
        return
    place %= len(samples)
    poorer = [*samples[:place], samples[place]._replace(readings=None), *samples[place + 1 :]]
    before, after = measure_usage(samples, *window), measure_usage(poorer, *window)
    assert after.gpu_s is None or after.gpu_s == before.gpu_s
    assert after.n_gpus is None or after.n_gpus == before.n_gpus


def test_nothing_known_is_nothing_told():
    assert measure_usage([], 0.0, 1.0) == GpuUsage()
    assert measure_usage([GpuSample(at_s=0.5)], 0.0, 1.0) == GpuUsage()


def test_no_devices_are_no_gpu_seconds():
    usage = measure_usage([sample(0.0), sample(1.0)], 0.0, 1.0)
    assert usage == GpuUsage(n_gpus=0, gpu_s=0.0, peak_bytes=0, by=PROCESS)


def test_window_shorter_than_the_time_between_samples():
    samples = [sample(t, held(held_bytes=t)) for t in (10, 20)]
    usage = measure_usage(samples, 10.1, 10.15)
    assert usage.gpu_s == pytest.approx(0.05)
    assert usage.peak_bytes == 10
    assert measure_usage(samples, 10.1, 10.1) == GpuUsage(n_gpus=1, gpu_s=0.0, peak_bytes=10, by=DEVICE)


def test_a_hung_sampler_leaves_a_hole_that_only_the_same_holders_bridge():
    def of(*pids: int, ratio: float = 1.0) -> DeviceReading:
        return held(ratio=ratio, by=PROCESS, holders=frozenset(pids))

    def seconds(before: DeviceReading, after: DeviceReading) -> float | None:
        return measure_usage([sample(0.0, before), sample(60.0, after)], 0.0, 60.0).gpu_s

    assert seconds(of(7), of(7)) == 60.0
    assert seconds(of(7), of(8)) is None  # two short visits, perhaps
    assert seconds(of(ratio=0.0), of(ratio=0.0)) is None  # an unseen visit, perhaps
    assert seconds(held(), held()) == 60.0  # by device: what may be used does not change
    assert seconds(held(), held(ratio=None)) is None


def test_hole_tells_no_memory_and_no_utilization():
    samples = [
        sample(t, held(held_bytes=b, utilization_ratio=u)) for t, b, u in ((0.0, 5, 0.5), (60.0, 9, 1.0))
    ]
    usage = measure_usage(samples, 20.0, 40.0)
    assert (usage.gpu_s, usage.peak_bytes, usage.utilization_ratio) == (20.0, None, None)


def test_time_after_the_last_sample_is_unknown():
    samples = [sample(t / 5, held()) for t in range(50)]
    assert measure_usage(samples, 8.0, 10.5).gpu_s == pytest.approx(2.5)
    assert measure_usage(samples, 8.0, 60.0).gpu_s is None


def test_mig_instance_counts_by_its_slices():
    # case 51: held time x slice share
    samples = [sample(t, held("MIG-b"), held("MIG-c", 0.0)) for t in range(11)]
    usage = measure_usage(samples, 0.0, 7.0)
    assert (usage.n_gpus, usage.gpu_s) == (1, pytest.approx(2.0))


def test_unknown_share_leaves_the_count():
    reading = held("MIG-b")._replace(share=None)
    usage = measure_usage([sample(0.0, reading)], 0.0, 1.0)
    assert (usage.n_gpus, usage.gpu_s) == (1, None)


def test_device_that_comes_and_goes_is_unknown():
    samples = [sample(0.0, held()), sample(1.0, held(), held("MIG-b"))]
    assert measure_usage(samples, 0.0, 1.0).gpu_s is None


def test_two_tests_on_one_gpu_share_it_by_process_and_not_by_device():
    def of(pid: int) -> list[GpuSample]:
        return [sample(t, held(ratio=0.5, by=PROCESS, holders=frozenset({pid}))) for t in range(5)]

    first, second = measure_usage(of(7), 0.0, 4.0), measure_usage(of(8), 0.0, 4.0)
    assert first.gpu_s + second.gpu_s == 4.0
    by_device = measure_usage([sample(t, held()) for t in range(5)], 0.0, 4.0)
    assert (by_device.gpu_s, by_device.by) == (4.0, DEVICE)


def test_hidden_memory_is_unknown_and_memory_of_nothing_is_none():
    assert measure_usage([sample(0.0, held(held_bytes=None))], 0.0, 1.0).peak_bytes is None
    free = held(ratio=0.0, by=PROCESS, held_bytes=0)
    assert measure_usage([sample(0.0, free)], 0.0, 1.0).peak_bytes == 0


def test_peak_is_of_all_held_devices_together():
    readings = held(held_bytes=30), held("MIG-b", held_bytes=12), held("MIG-c", 0.0, held_bytes=99)
    assert measure_usage([sample(0.0, *readings)], 0.0, 1.0).peak_bytes == 42


def test_mean_utilization_is_weighted_by_time_and_share():
    samples = [sample(t, held(utilization_ratio=u)) for t, u in ((0.0, 1.0), (1.0, 0.0), (2.0, None))]
    assert measure_usage(samples, 0.0, 1.0).utilization_ratio == pytest.approx(0.5)
    assert measure_usage(samples, 0.0, 2.0).utilization_ratio == pytest.approx(1 / 3)
    two = [sample(0.0, held(utilization_ratio=0.0), held("MIG-b", utilization_ratio=1.0))]
    assert measure_usage(two, 0.0, 1.0).utilization_ratio == pytest.approx((2 / 7) / (9 / 7))


def test_weakest_attribution_is_told():
    samples = [sample(0.0, held(by=PROCESS)), sample(1.0, held(by=DEVICE))]
    assert measure_usage(samples, 0.0, 0.4).by is PROCESS
    assert measure_usage(samples, 0.0, 1.0).by is DEVICE


@pytest.mark.parametrize("window", [(2.0, 1.0), (math.nan, 1.0), (0.0, math.inf)])
def test_window_that_is_none_is_refused(window):
    with pytest.raises(ValueError, match="expected two times in order"):
        measure_usage([], *window)
