"""Keys of terms that are not computed are those of the terms when they are computed."""

from __future__ import annotations

import numpy as np
import pytest

from taso.generate.hashing import Hasher
from taso.generate.universe import World
from tests.generate.universes import SPEC

WORLD = World(SPEC.universes["taso"], SPEC)
NAMES = [instance.name for instance in WORLD.instances]
X, W, IMAGE, WIDE = (2, 4), (4, 4), (2, 4, 5, 5), (2, 8, 5, 5)
PAIRS = [
    ("add", X, X, "linear"),
    ("concat0", X, W, "linear"),
    ("concat1", IMAGE, IMAGE, "linear"),
    ("mul", IMAGE, IMAGE, "bilinear"),
    ("scale", IMAGE, (), "bilinear"),
    ("matmul", X, W, "bilinear"),
    ("conv3x3", IMAGE, (4, 4, 3, 3), "bilinear"),
    ("conv3x3", IMAGE, (4, 1, 3, 3), "bilinear"),
    ("conv3x3", WIDE, (4, 4, 3, 3), "bilinear"),
    ("conv1x3", IMAGE, (4, 4, 1, 3), "bilinear"),
    ("conv3x3_relu", IMAGE, (4, 4, 3, 3), "other"),
]
SINGLE = [
    ("relu", X, "other"),
    ("maximum", IMAGE, "other"),
    ("average", IMAGE, "linear"),
    ("transpose", W, "linear"),
    ("first1", WIDE, "linear"),
    ("enlarge", (4, 4, 1, 3), "linear"),
]


def ninths(rng: np.random.Generator, count: int, shape: tuple[int, ...]) -> np.ndarray:
    return np.asarray(rng.integers(-50, 51, (count, WORLD.options.samples, *shape)) / 9)


@pytest.mark.parametrize(("name", "a", "b", "form"), PAIRS)
@pytest.mark.parametrize("sizes", [(3, 40), (40, 3), (1, 1), (200, 150)])
def test_pairs(name: str, a: tuple[int, ...], b: tuple[int, ...], form: str, sizes: tuple[int, int]) -> None:
    if form == "other" and sizes == (200, 150):
        sizes = (20, 15)
    applied = WORLD.applied(NAMES.index(name), (a, b))
    assert applied is not None and applied.form == form
    hasher, rng = Hasher(WORLD, 7), np.random.default_rng(3)
    left, right = hasher.rows(ninths(rng, sizes[0], a)), hasher.rows(ninths(rng, sizes[1], b))
    every = hasher.outer(applied, left, right)
    assert every.shape == sizes
    i, j = rng.integers(0, sizes[0], 50), rng.integers(0, sizes[1], 50)
    computed = hasher.computed(applied, [left.data[i], right.data[j]])
    expected = hasher.fingerprint.keys(computed.reshape(50, -1))
    np.testing.assert_array_equal(every[i, j], expected)
    np.testing.assert_array_equal(hasher.pairs(applied, left, right, i, j), expected)
    needed = np.zeros(sizes, bool)
    needed[i, j] = True
    np.testing.assert_array_equal(hasher.outer(applied, left, right, needed)[i, j], expected)


@pytest.mark.parametrize(("name", "a", "form"), SINGLE)
def test_single(name: str, a: tuple[int, ...], form: str) -> None:
    applied = WORLD.applied(NAMES.index(name), (a,))
    assert applied is not None and applied.form == form
    hasher = Hasher(WORLD, 7)
    rows = hasher.rows(ninths(np.random.default_rng(3), 30, a))
    computed = hasher.computed(applied, [rows.data])
    np.testing.assert_array_equal(hasher.unary(applied, rows), hasher.fingerprint.keys(computed.reshape(len(rows), -1)))


def test_real_numbers_are_computed() -> None:
    world = World(SPEC.universes["functions"], SPEC)
    hasher, shape = Hasher(world, 7), (2, 4)
    names = [instance.name for instance in world.instances]
    rows = hasher.rows(np.random.default_rng(3).standard_normal((10, world.options.samples, *shape)))
    for name in ("tanh", "transpose"):
        applied = world.applied(names.index(name), (shape,))
        assert applied is not None and hasher.form(applied) == "other"
        computed = hasher.computed(applied, [rows.data])
        np.testing.assert_array_equal(hasher.unary(applied, rows), hasher.fingerprint.keys(computed.reshape(10, -1)))
