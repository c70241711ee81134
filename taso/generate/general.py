"""What makes one equality more general than another: subterms that could be anything, and instances of a known one."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Iterator

import numpy as np

from taso.generate.fingerprint import Fingerprint
from taso.generate.universe import Concrete, World
from taso.spec import syntax as s
from taso.spec.elaborate import Typed
from taso.spec.lower import plan_for, run_typed
from taso.spec.plan import Plan, concrete

Side = tuple[Typed, ...]
_CACHE = 1 << 28  # bytes of values of subterms that are kept
_TRIES = 27  # ways of telling the occurrences of one tensor apart that are tried


def tensors(side: Side) -> dict[str, Concrete]:
    """The tensors of a side with their shapes, in the order in which they appear."""
    found: dict[str, Concrete] = {}

    def walk(node: Typed) -> None:
        if node.kind == "var":
            found.setdefault(node.head, concrete(node.shape))
        for arg in node.args:
            walk(arg)

    for node in side:
        walk(node)
    return found


class Cutter:
    """Evaluates typed trees on samples of the universe's inputs, and puts fresh tensors in the place of subterms."""

    def __init__(self, world: World, fingerprint: Fingerprint, seed: int) -> None:
        self.world, self.fingerprint, self.count = world, fingerprint, 4 * world.options.samples
        samples = world.samples(seed, self.count)
        self.samples = {leaf.name: rows for leaf, rows in zip(world.leaves, samples) if leaf.group >= 0}
        self.fresh: dict[tuple[str, Concrete], np.ndarray] = {}
        self.values: dict[Typed, np.ndarray] = {}
        self.bytes = 0
        self.plans: dict[object, Plan] = {}

    def equal(self, left: Side, right: Side) -> bool:
        """Whether two sides are equal on the samples, output by output."""
        for a, b in zip(left, right):
            if a.shape != b.shape:
                return False
            if a == b:
                continue
            x, y = self._value(a), self._value(b)
            if not self.fingerprint.same(x.reshape(len(x), -1), y.reshape(len(y), -1)).all():
                return False
        return True

    def _value(self, tree: Typed) -> np.ndarray:
        known = self.values.get(tree)
        if known is None:
            if tree.kind == "var":
                return self.sample(tree.head, concrete(tree.shape))
            known = np.asarray(self._compute(tree))
            self.bytes += known.nbytes
            if self.bytes > _CACHE:
                self.values.clear()
                self.bytes = 0
            self.values[tree] = known
        return known

    def _compute(self, tree: Typed) -> np.ndarray:
        if not tree.args:
            value = run_typed(tree, self.world.spec, {}, batched=1)
            return np.broadcast_to(value, (self.count, *concrete(tree.shape))).copy()
        args = [self._value(arg) for arg in tree.args]
        key = tree.head, tree.attrs, tuple(arg.shape for arg in tree.args)
        if key not in self.plans:
            self.plans[key] = plan_for(self.world.spec.operators[tree.head], key[2], tree.attr)  # type: ignore[arg-type]
        return np.asarray(self.plans[key].run(args, 1, np.dtype(np.float64)))

    def sample(self, name: str, shape: Concrete) -> np.ndarray:
        """Samples (count, *shape) of a tensor: the universe's input of this name and shape, or a fresh one."""
        known = self.samples.get(name)
        if known is not None and known.shape[1:] == shape:
            return known
        key = name, shape
        if key not in self.fresh:
            digest = hashlib.sha256(repr(key).encode()).digest()
            rng = np.random.default_rng(int.from_bytes(digest[:8], "big"))
            size = (self.count, *shape)
            real = np.exp(rng.uniform(-2, 1.4, size)) * rng.choice([-1.0, 1.0], size)
            self.fresh[key] = real if self.world.options.real else rng.integers(-4, 5, size) * 1.0
        return self.fresh[key]

    def general(self, left: Side, right: Side) -> tuple[Side, Side]:
        """The most general form of an equality: different tensors and cut subterms wherever it stays true."""
        for _ in range(3):
            before = left, right
            left, right = self.cut(*self.split(left, right))
            if (left, right) == before:
                break
        return left, right

    def split(self, left: Side, right: Side) -> tuple[Side, Side]:
        """Tensors that appear several times become different ones: x op x is one case of x op y."""
        for name, shape in tensors((*left, *right)).items():
            counts = [sum(_count(node, name) for node in _once(side)) for side in (left, right)]
            swapped = counts[0] < counts[1]
            many, few = (right, left) if swapped else (left, right)
            most, least = max(counts), min(counts)
            if most < 2 or most**least > _TRIES:
                continue
            taken = {**tensors((*left, *right))}
            names = [name]
            while len(names) < most:
                names.append(self._name(shape, taken))
                taken[names[-1]] = shape
            spread = _spread(many, name, names)
            for places in itertools.product(names, repeat=least):
                other = _spread(few, name, list(places))
                if len(set(places)) == min(most, least) and self.equal(spread, other):
                    left, right = (other, spread) if swapped else (spread, other)
                    break
        return left, right

    def cut(self, left: Side, right: Side) -> tuple[Side, Side]:
        """The sides with every subterm that could be anything replaced by a tensor, the largest first."""
        refused: set[Typed] = set()
        while True:
            choice = next((node for node in self._inside(left, right) if node not in refused), None)
            if choice is None:
                return left, right
            shape = concrete(choice.shape)
            fresh = Typed("var", self._name(shape, tensors((*left, *right))), shape=shape)
            cut = [tuple(replaced(node, choice, fresh) for node in side) for side in (left, right)]
            if self.equal(cut[0], cut[1]):
                left, right = cut
            else:
                refused.add(choice)

    def _inside(self, left: Side, right: Side) -> list[Typed]:
        """The subterms below the tops of either side that are no tensors, largest first."""
        found: dict[Typed, int] = {}

        def walk(node: Typed, top: bool) -> int:
            size = 1 + sum([walk(arg, False) for arg in node.args])
            if not top and node.kind != "var":
                found[node] = size
            return size

        for node in (*left, *right):
            walk(node, True)
        order = list(found)
        return sorted(order, key=lambda node: -found[node])

    def _name(self, shape: Concrete, taken: dict[str, Concrete]) -> str:
        """An input of the universe with this shape that is not taken, else a new name."""
        for leaf in self.world.leaves:
            if leaf.group >= 0 and leaf.shape == shape and leaf.name not in taken:
                return leaf.name
        names = taken.keys() | {leaf.name for leaf in self.world.leaves}
        return next(name for name in (f"t{k}" for k in range(1, 1000)) if name not in names)


def _count(tree: Typed, name: str) -> int:
    """How often a tensor appears."""
    if tree.kind == "var":
        return int(tree.head == name)
    return sum(_count(arg, name) for arg in tree.args)


def _once(side: Side) -> Side:
    """The side; of two outputs of one value (they have the same arguments) only the first."""
    return side[:1] if len(side) == 2 and side[0].args == side[1].args else side


def _spread(side: Side, name: str, names: list[str]) -> Side:
    """The side with the occurrences of a tensor, from the left, called `names`; two outputs of one value stay so."""
    left = iter(names)

    def walk(tree: Typed) -> Typed:
        if tree.kind == "var":
            return Typed("var", next(left), shape=tree.shape) if tree.head == name else tree
        args = tuple([walk(arg) for arg in tree.args])
        return tree if args == tree.args else Typed(tree.kind, tree.head, args, tree.attrs, tree.shape, tree.body)

    spread = tuple([walk(node) for node in _once(side)])
    if len(spread) < len(side):
        second = side[1]
        return *spread, Typed(second.kind, second.head, spread[0].args, second.attrs, second.shape)
    return spread


def replaced(tree: Typed, old: Typed, new: Typed) -> Typed:
    """The tree with every occurrence of a subtree replaced."""
    if tree == old:
        return new
    args = tuple(replaced(arg, old, new) for arg in tree.args)
    return tree if args == tree.args else Typed(tree.kind, tree.head, args, tree.attrs, tree.shape, tree.body)


def sides_congruent(left: Side, right: Side, cutter: Cutter) -> bool:
    """Whether the equality follows from one of its arguments: the same operator on top, of arguments that are equal."""
    if len(left) != 1:
        return False
    a, b = left[0], right[0]
    if a.kind != "apply" or (a.kind, a.head, a.attrs, a.shape) != (b.kind, b.head, b.attrs, b.shape) or not a.args:
        return False
    return all(x == y or cutter.equal((x,), (y,)) for x, y in zip(a.args, b.args))


# --- instances -----------------------------------------------------------------------------------------------------


def instance_of(
    left: tuple[s.Term, ...],
    right: tuple[s.Term, ...],
    source: tuple[s.Term, ...],
    target: tuple[s.Term, ...],
    swaps: Callable[[str], bool] = lambda op: False,
) -> bool:
    """Whether `left` and `right` are `source` and `target`, either way round, with terms for the tensors.

    Args:
        swaps: whether the two arguments of an operator may be taken in either order.
    """
    if len(left) != len(source):
        return False
    terms = (*left, *right)
    return any(
        next(_match((*a, *b), terms, {}, swaps), None) is not None for a, b in ((source, target), (target, source))
    )


def _match(
    patterns: tuple[s.Term, ...], terms: tuple[s.Term, ...], bound: dict[str, s.Term], swaps: Callable[[str], bool]
) -> Iterator[dict[str, s.Term]]:
    """All ways in which the patterns are the terms, as what their tensors stand for."""
    if not patterns:
        yield bound
        return
    pattern, term, rest = patterns[0], terms[0], (patterns[1:], terms[1:])
    if isinstance(pattern, s.Var):
        known = bound.get(pattern.name)
        if known is None or known == term:
            yield from _match(*rest, {**bound, pattern.name: term}, swaps)
    elif isinstance(pattern, s.Apply) and isinstance(term, s.Apply):
        if (pattern.op, pattern.attrs, len(pattern.args)) == (term.op, term.attrs, len(term.args)):
            yield from _match((*pattern.args, *rest[0]), (*term.args, *rest[1]), bound, swaps)
            if len(term.args) == 2 and swaps(term.op):
                yield from _match((*pattern.args, *rest[0]), (*term.args[::-1], *rest[1]), bound, swaps)
    elif pattern == term:
        yield from _match(*rest, bound, swaps)
