"""Keys of terms from the data of their arguments, without forming what the term computes where that can be avoided.

A key is three linear functionals of a row, modulo a prime. So for an operator that is linear in its arguments
together (add, concat, a slice, an average) the key of a term is a sum of one functional per argument; and for one
that is linear in each of two (a product, a convolution) it is a bilinear form, so that all pairs of a block are one
matrix product. These functionals come from running the operator on unit tensors. Everything else is computed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from types import ModuleType

import numpy as np

from taso.generate.fingerprint import Array, Exact, Fingerprint, Real
from taso.generate.universe import Applied, World

_BLOCK = 1 << 21  # numbers that are computed at a time


@dataclass(eq=False)
class Rows:
    """The data (count, samples, *shape) of some values of one shape, with what was computed from it."""

    data: Array
    fingerprint: Fingerprint

    def __len__(self) -> int:
        return len(self.data)

    @cached_property
    def residues(self) -> Array:
        """Residues of the entries, (count, samples * size)."""
        assert isinstance(self.fingerprint, Exact)
        return self.fingerprint.residues(self.data.reshape(len(self.data), -1))


class Hasher:
    """Hashes terms of one universe. `xp` is numpy or cupy; data is on its device, keys come back to the host."""

    def __init__(self, world: World, seed: int, xp: ModuleType = np) -> None:
        self.world, self.seed, self.xp = world, seed, xp
        options = world.options
        self.samples = options.samples
        self.fingerprint: Fingerprint = Real(seed, xp) if options.real else Exact(seed, options.denominator, xp)
        self._functionals: dict[tuple[object, int], Array] = {}
        self._tensors: dict[object, Array] = {}

    def rows(self, data: np.ndarray) -> Rows:
        """Data from the host, on the device."""
        return Rows(self.xp.asarray(data), self.fingerprint)

    def some(self, rows: Rows, at: np.ndarray) -> Rows:
        """Some of the rows."""
        return Rows(rows.data[self.xp.asarray(at)], self.fingerprint)

    def host(self, keys: Array) -> np.ndarray:
        """An array on the host."""
        return np.asarray(keys if self.xp is np else keys.get())

    def form(self, applied: Applied) -> str:
        """`linear`, `bilinear` or `other`; real numbers, which have no residues, are always computed."""
        return "other" if isinstance(self.fingerprint, Real) else applied.form

    def unary(self, applied: Applied, rows: Rows) -> np.ndarray:
        """Keys of an instance of one tensor at each row."""
        if self.form(applied) == "linear":
            return self.host(self._part(applied, 0, rows))
        return self._computed(applied, [rows.data])

    def outer(self, applied: Applied, left: Rows, right: Rows, needed: np.ndarray | None = None) -> np.ndarray:
        """Keys of an instance of two tensors at every pair of a left and a right row: (left, right, ...).

        Args:
            needed: (left, right) truth values; where the terms have to be computed, only these keys are filled in.
        """
        form = self.form(applied)
        if form == "linear":
            assert isinstance(self.fingerprint, Exact)
            parts = self._part(applied, 0, left)[:, None], self._part(applied, 1, right)[None]
            return self.host(self.fingerprint.add(*parts))
        if form == "bilinear":
            return self._bilinear(applied, left, right)
        if needed is not None:
            return self._needed(applied, left, right, needed)
        width = self._width(applied)
        step = max(1, _BLOCK // (width * max(1, len(right))))
        step_right = max(1, _BLOCK // width) if step == 1 else max(1, len(right))
        blocks = []
        for start in range(0, len(left), step):
            a = left.data[start : start + step, None]
            listed = []
            for at in range(0, len(right), step_right):
                b = right.data[None, at : at + step_right]
                with np.errstate(all="ignore"):
                    result = applied.run([a, b], 3, self.xp)
                keys = self.host(self.fingerprint.keys(result.reshape(a.shape[0] * b.shape[1], -1)))
                listed.append(keys.reshape(a.shape[0], b.shape[1], *keys.shape[1:]))
            blocks.append(np.concatenate(listed, axis=1))
        return np.concatenate(blocks)

    def _needed(self, applied: Applied, left: Rows, right: Rows, needed: np.ndarray) -> np.ndarray:
        """`outer`, computed for one row of the smaller side at a time and those of the other that need it."""
        flip = len(left) < len(right)
        out: np.ndarray | None = None
        for k, wanted in enumerate(needed if flip else needed.T):
            at = np.nonzero(wanted)[0]
            if not len(at):
                continue
            a, b = (Rows(side.data[k : k + 1], self.fingerprint) for side in (left, right))
            keys = self.outer(applied, a, self.some(right, at)) if flip else self.outer(applied, self.some(left, at), b)
            if out is None:
                out = np.zeros((*needed.shape, *keys.shape[2:]), keys.dtype)
            if flip:
                out[k, at] = keys[0]
            else:
                out[at, k] = keys[:, 0]
        return np.zeros(needed.shape) if out is None else out

    def pairs(self, applied: Applied, left: Rows, right: Rows, i: np.ndarray, j: np.ndarray) -> np.ndarray:
        """Keys of an instance of two tensors at the pairs (left[i[k]], right[j[k]])."""
        form = self.form(applied)
        if form == "linear":
            assert isinstance(self.fingerprint, Exact)
            a, b = (self.host(self._part(applied, k, rows)) for k, rows in enumerate((left, right)))
            return np.asarray(self.fingerprint.add(a[i], b[j]))
        step = max(1, _BLOCK // self._width(applied))
        blocks = []
        for start in range(0, len(i), step):
            block = slice(start, start + step)
            if form == "other":
                args = [self.some(side, at[block]).data for side, at in ((left, i), (right, j))]
                blocks.append(self._computed(applied, args))
                continue
            assert isinstance(self.fingerprint, Exact)
            arguments = [
                rows.residues[self.xp.asarray(at)].reshape(len(at), self.samples, *shape)
                for rows, at, shape in zip((left, right), (i[block], j[block]), applied.shapes)
            ]
            result = self.fingerprint.modulo(applied.run(arguments, 2, self.xp).reshape(len(i[block]), -1))
            matrix = self.fingerprint.matrix(result.shape[1])
            blocks.append(self.host(self.fingerprint.pack(self.fingerprint.product(result, matrix))))
        return np.concatenate(blocks) if blocks else np.zeros(0, np.uint64)

    def computed(self, applied: Applied, args: list[Array]) -> np.ndarray:
        """Data (count, samples, *shape) of an instance at rows of arguments, on the host."""
        step = max(1, _BLOCK // self._width(applied))
        out = np.empty((len(args[0]), self.samples, *applied.shape))
        for start in range(0, len(out), step):
            with np.errstate(all="ignore"):
                out[start : start + step] = self.host(
                    applied.run([arg[start : start + step] for arg in args], 2, self.xp)
                )
        return out

    def _width(self, applied: Applied) -> int:
        """Numbers that one term takes, about."""
        return self.samples * max(math.prod(shape) for shape in (applied.shape, *applied.shapes))

    def _computed(self, applied: Applied, args: list[Array]) -> np.ndarray:
        step = max(1, _BLOCK // self._width(applied))
        blocks = []
        for start in range(0, len(args[0]), step):
            with np.errstate(all="ignore"):
                result = applied.run([arg[start : start + step] for arg in args], 2, self.xp)
            blocks.append(self.host(self.fingerprint.keys(result.reshape(len(result), -1))))
        return np.concatenate(blocks)

    # --- linear in all arguments together
    def _part(self, applied: Applied, position: int, rows: Rows) -> Array:
        """What one argument adds to the key, for each row."""
        fingerprint = rows.fingerprint
        assert isinstance(fingerprint, Exact)
        return fingerprint.pack(fingerprint.product(rows.residues, self._functional(applied, position)))

    def _functional(self, applied: Applied, position: int) -> Array:
        """The functionals of the result as functionals of one argument: (samples * size, 3) residues."""
        key = (applied.instance.name, applied.shapes), position
        if key not in self._functionals:
            fingerprint = self.fingerprint
            assert isinstance(fingerprint, Exact)
            arguments = [self.xp.zeros((1, *shape)) for shape in applied.shapes]
            arguments[position] = self._units(applied, position)
            columns = fingerprint.residues(applied.run(arguments, 1, self.xp).reshape(len(arguments[position]), -1))
            matrix = fingerprint.matrix(self.samples * columns.shape[1]).reshape(self.samples, columns.shape[1], 3)
            parts = [fingerprint.product(columns, matrix[s]) for s in range(self.samples)]
            self._functionals[key] = self.xp.concatenate(parts)
        return self._functionals[key]

    def _units(self, applied: Applied, position: int) -> Array:
        """The unit tensors of an argument: (size, *shape)."""
        size = math.prod(applied.shapes[position])
        return self.xp.eye(size).reshape(size, *applied.shapes[position])

    # --- linear in each of two arguments
    def _bilinear(self, applied: Applied, left: Rows, right: Rows) -> np.ndarray:
        """Keys of all pairs: functionals of the larger side, one per row of the smaller, times the larger side."""
        fingerprint = self.fingerprint
        assert isinstance(fingerprint, Exact)
        position = 0 if len(left) < len(right) else 1  # the side that turns into functionals
        fixed, free = (left, right) if position == 0 else (right, left)
        out = np.empty((len(free), len(fixed)), np.uint64)
        step = max(1, _BLOCK // (3 * free.residues.shape[1]))
        for start in range(0, len(fixed), step):
            functionals = self._against(applied, position, fixed.residues[start : start + step])
            count = functionals.shape[1] // 3
            rows = max(1, _BLOCK // (3 * count))
            for at in range(0, len(free), rows):
                sums = fingerprint.product(free.residues[at : at + rows], functionals)
                out[at : at + rows, start : start + count] = self.host(
                    fingerprint.pack(sums.reshape(len(sums), count, 3))
                )
        return out.T if position == 0 else out

    def _against(self, applied: Applied, position: int, rows: Array) -> Array:
        """Functionals of the other argument, (samples * size, count * 3), for `count` rows of the one at `position`."""
        fingerprint, xp = self.fingerprint, self.xp
        assert isinstance(fingerprint, Exact)
        size = math.prod(applied.shapes[position])
        if len(rows) * self.samples > size:  # rather unit tensors on this side too, and then combine
            tensor = self._tensor(applied, position)
            parts = [
                fingerprint.product(rows[:, s * size : (s + 1) * size], tensor[s]).reshape(len(rows), -1, 3)
                for s in range(self.samples)
            ]
        else:
            parts = [
                self._sections(applied, position, rows[:, s * size : (s + 1) * size], s) for s in range(self.samples)
            ]
        joined = xp.concatenate(parts, axis=1)  # (count, samples * other size, 3)
        return joined.transpose(1, 0, 2).reshape(joined.shape[1], -1)

    def _tensor(self, applied: Applied, position: int) -> Array:
        """The form itself: (samples, size, other size * 3), its entries residues."""
        key = applied.instance.name, applied.shapes, position
        if key not in self._tensors:
            size = math.prod(applied.shapes[position])
            units = self._units(applied, position).reshape(size, size)
            parts = [self._sections(applied, position, units, s) for s in range(self.samples)]
            self._tensors[key] = self.xp.stack(parts).reshape(self.samples, size, -1)
        return self._tensors[key]

    def _sections(self, applied: Applied, position: int, rows: Array, sample: int) -> Array:
        """For tensors (count, size) at one position, the functionals of the other: (count, other size, 3)."""
        fingerprint = self.fingerprint
        assert isinstance(fingerprint, Exact)
        units = self._units(applied, 1 - position)
        width = math.prod(applied.shape)
        matrix = fingerprint.matrix(self.samples * width).reshape(self.samples, width, 3)[sample]
        step = max(1, _BLOCK // (len(units) * width))
        blocks = []
        for start in range(0, len(rows), step):
            block = rows[start : start + step]
            given = block.reshape(len(block), 1, *applied.shapes[position])
            arguments = [given, units[None]] if position == 0 else [units[None], given]
            result = fingerprint.modulo(applied.run(arguments, 2, self.xp).reshape(len(block) * len(units), width))
            blocks.append(fingerprint.product(result, matrix).reshape(len(block), len(units), 3))
        return self.xp.concatenate(blocks)
