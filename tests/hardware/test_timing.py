from __future__ import annotations

import math
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from taso.errors import MeasureError
from taso.hardware.runtime import Worker
from taso.hardware.timing import (
    Timing,
    compare,
    faster_beyond_noise,
    half_interquartile_range,
    interleaved,
    paired_ratio,
    sign_test_rank,
)
from tests.hardware.models import case, scaled, unary

INPUTS = {"x": np.random.default_rng(0).standard_normal((64, 256)).astype(np.float32)}


def timing(name: str, samples: list[float], blocks: tuple[int, ...] | None = None) -> Timing:
    return Timing(name, tuple(samples), tuple(samples), "cpu", "full", blocks or (len(samples),))


def noisy(center: float, seed: int, count: int = 41) -> list[float]:
    noise = random.Random(seed)
    return [center * math.exp(noise.gauss(0, 0.02)) for _ in range(count)]


def test_a_model_with_far_more_work_is_slower_beyond_noise() -> None:
    little, much = unary("Tanh", (64, 256), count=1), unary("Tanh", (64, 256), count=30)
    models = [("much", much), ("little", little)]
    before, after, null = interleaved(models, INPUTS, threads=1, time_budget_s=0.8, null=True)
    assert (before.name, after.name, null.name) == ("much", "little", "much (again)")
    assert len(before.samples_us) == len(after.samples_us) == len(null.samples_us) == sum(before.blocks) >= 11
    assert before.clock == "cpu" and before.level == "full"
    result = compare(before, after, null)
    assert result.low <= result.speedup <= result.high
    assert faster_beyond_noise(result, 1.5)
    assert not faster_beyond_noise(compare(after, before))


def test_several_threads_are_timed_by_the_wall_clock() -> None:
    with Worker(threads=2) as worker:
        (only,) = interleaved([("a", unary("Tanh", (64, 256)))], INPUTS, threads=2, time_budget_s=0.1, worker=worker)
        assert only.clock == "wall" and only.samples_us == only.wall_us
        assert worker._sessions == {}


def test_the_number_of_runs_is_bounded() -> None:
    (only,) = interleaved([("a", scaled(2, shape=(64, 256)))], INPUTS, threads=1, time_budget_s=5, runs=12)
    assert 11 <= len(only.samples_us) <= 12


def test_the_level_that_a_model_needed_is_told() -> None:
    broken_at_full, inputs = case("02")
    (only,) = interleaved([("a", broken_at_full)], inputs, threads=1, time_budget_s=0.05)
    assert only.level == "disabled"


def test_a_model_that_does_not_run_is_an_error() -> None:
    with pytest.raises(MeasureError):
        interleaved([("a", unary("Nonsense"))], {"x": np.zeros(4, np.float32)}, threads=1)


@pytest.mark.parametrize("seed", range(20))
def test_equal_models_are_a_tie(seed: int) -> None:
    before, after, null = (noisy(100, 3 * seed + part) for part in range(3))
    result = compare(timing("a", before), timing("b", after), timing("a (again)", null))
    assert not faster_beyond_noise(result, 1.02)


def test_a_clear_gain_is_seen_through_noise_and_through_slow_stretches() -> None:
    slow_stretch = [3.0 if 10 <= position < 20 else 1.0 for position in range(41)]
    before, after, null = (
        [one * two for one, two in zip(noisy(c, s), slow_stretch)] for c, s in [(110, 1), (100, 2), (110, 3)]
    )
    result = compare(timing("a", before), timing("b", after), timing("a (again)", null))
    assert result.speedup == pytest.approx(1.1, abs=0.02)
    assert faster_beyond_noise(result, 1.05)
    assert not faster_beyond_noise(result, 1.2)


def test_a_gain_no_larger_than_between_two_sessions_of_one_model_is_noise() -> None:
    before, after, null = noisy(105, 1), noisy(100, 2), noisy(98, 3)
    assert faster_beyond_noise(compare(timing("a", before), timing("b", after)))
    assert not faster_beyond_noise(compare(timing("a", before), timing("b", after), timing("a (again)", null)))


def test_a_gain_in_half_of_the_blocks_only_is_noise() -> None:
    blocks = (20, 20, 20, 20)
    before = noisy(130, 1, 20) + noisy(130, 2, 20) + noisy(99.9, 3, 20) + noisy(99.5, 4, 20)
    result = compare(timing("a", before, blocks), timing("b", [100.0] * 80, blocks))
    assert len(result.by_block) == 4
    assert result.speedup > 1 and not faster_beyond_noise(result)


def test_only_the_second_session_of_the_first_model_is_a_null() -> None:
    one = timing("a", [1.0, 2.0])
    with pytest.raises(ValueError, match="second session"):
        compare(one, one, timing("b (again)", [1.0, 2.0]))


def test_the_rank_of_the_sign_test_is_the_textbooks() -> None:
    # Two-sided 5 % critical values of the sign test: reject when at most r of n go the other way.
    table = {6: 0, 9: 1, 11: 1, 12: 2, 15: 3, 20: 5, 25: 7, 30: 9, 50: 17}
    assert {count: sign_test_rank(count) for count in table} == table


@given(st.lists(st.floats(1, 1e6), min_size=1, max_size=60), st.floats(0.1, 10))
def test_the_bounds_hold_the_median_and_scale_with_the_ratio(samples: list[float], factor: float) -> None:
    middle, low, high = paired_ratio([factor * one for one in samples], samples)
    assert low <= middle <= high
    assert middle == pytest.approx(factor)


def test_the_bounds_cover_the_true_median_as_often_as_they_promise() -> None:
    noise = random.Random(5)
    covered = 0
    for _ in range(1000):
        before = [math.exp(noise.gauss(0, 0.3)) for _ in range(15)]
        _, low, high = paired_ratio(before, [1.0] * 15)
        covered += low <= 1 <= high
    assert covered >= 935  # 965 are expected of 15 samples; 935 is five standard deviations below


def test_half_the_interquartile_range() -> None:
    assert half_interquartile_range([1, 2, 3, 4, 5]) == 1
    assert half_interquartile_range([7]) == 0
