"""A universe made concrete: its inputs, constants and operator instances as array code for given shapes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from types import ModuleType
from typing import Any, Literal

import numpy as np

from taso.errors import ShapeError, SpecError
from taso.spec import syntax as s
from taso.spec.elaborate import Typed, elaborate
from taso.spec.evaluate import Scope, evaluate, holds
from taso.spec.lower import run_typed
from taso.spec.plan import concrete
from taso.spec.spec import Spec
from taso.spec.value import Value

Array = Any
Concrete = tuple[int, ...]
Form = Literal["linear", "bilinear", "other"]


@dataclass(frozen=True)
class Options:
    """What `set` lines say.

    limit: the most elements that a value may have.
    denominator: every value times this is a whole number (an average over 9 makes ninths); samples are then integers.
    real: values are real numbers and are compared with a tolerance (exp, division, square roots).
    positive: inputs whose samples are positive, for functions that are defined there only.
    ground: also enumerate operators of constants only; otherwise they are left to constant folding.
    pairs: pairs of instance names that are the two outputs of one operator, such as the two halves of a split.
    samples: independent samples per value.
    ops: the most operators in a graph that are worth enumerating here; None leaves it to who asks.
    """

    limit: int = 512
    denominator: int = 1
    real: bool = False
    ground: bool = False
    positive: tuple[str, ...] = ()
    pairs: tuple[tuple[str, str], ...] = ()
    samples: int = 3
    ops: int | None = None


@dataclass(frozen=True)
class Leaf:
    """An input (`group` numbers its class of interchangeable ones) or a constant (`group` -1)."""

    name: str
    shape: Concrete
    group: int
    typed: Typed


@dataclass(frozen=True)
class Applied:
    """An instance at argument shapes: array code, result shape, and its tree of core operators."""

    instance: s.Instance
    shapes: tuple[Concrete, ...]
    typed: Typed
    spec: Spec = field(repr=False, compare=False)

    @property
    def shape(self) -> Concrete:
        return concrete(self.typed.shape)

    def run(self, args: Sequence[Array], lead: int, xp: ModuleType = np) -> Array:
        """Apply to arrays with `lead` batch axes."""
        value = run_typed(self.typed, self.spec, dict(zip(self.instance.params, args)), xp=xp, batched=lead)
        batch = np.broadcast_shapes(*(arg.shape[:lead] for arg in args))
        return xp.broadcast_to(value, batch + self.shape)

    @cached_property
    def form(self) -> Form:
        """Whether it is linear in its arguments together or in each of two, seen on random whole numbers."""
        rng = np.random.default_rng(11)
        one, other = ([rng.integers(-9, 10, (4, *shape)) * 1.0 for shape in self.shapes] for _ in range(2))

        def additive(left: Sequence[Array], right: Sequence[Array], both: Sequence[Array]) -> bool:
            a, b, c = (self.run(args, 1) for args in (left, right, both))
            return bool(np.isfinite(c).all() and np.allclose(a + b, c, rtol=1e-9, atol=1e-9))

        with np.errstate(all="ignore"):
            if additive(one, other, [a + b for a, b in zip(one, other)]):
                return "linear"
            if len(self.shapes) == 2:
                (a, b), (c, d) = one, other
                whole = np.array_equal(self.run(one, 1), np.rint(self.run(one, 1)))
                if whole and additive([a, b], [c, b], [a + c, b]) and additive([a, b], [a, d], [a, b + d]):
                    return "bilinear"
        return "other"

    def tree(self, args: Sequence[Typed]) -> Typed:
        """The instance with these trees for its parameters."""
        return _substitute(self.typed, dict(zip(self.instance.params, args)))

    @cached_property
    def text(self) -> str:
        """Names the instance with its attributes: the same for shapes where it does the same."""
        found: list[str] = [self.instance.name]

        def walk(node: Typed) -> None:
            types = (
                {attr.name: attr.type for attr in self.spec.declared(node.head).attrs} if node.kind == "apply" else {}
            )
            found.extend(f"{name}={value}" for name, value in node.attrs if types.get(name) != "shape")
            for arg in node.args:
                walk(arg)

        walk(self.typed)
        return " ".join(found)


def _substitute(tree: Typed, values: dict[str, Typed]) -> Typed:
    if tree.kind == "var":
        return values[tree.head]
    if not tree.args:
        return tree
    return Typed(
        tree.kind, tree.head, tuple(_substitute(arg, values) for arg in tree.args), tree.attrs, tree.shape, tree.body
    )


class World:
    """A universe over a specification. `leaves` are the inputs in order, then the constants."""

    def __init__(self, universe: s.Universe, spec: Spec) -> None:
        self.universe, self.spec = universe, spec
        self.options = _options(universe)
        self.instances = universe.instances
        for instance in self.instances:
            if not 1 <= len(instance.params) <= 2:
                raise SpecError(f"`{instance.name}` takes {len(instance.params)} tensors; 1 or 2 can be enumerated",
                                line=instance.pos.line, column=instance.pos.column)  # fmt: skip
        self.leaves = self._leaves()
        self._applied: dict[tuple[int, tuple[Concrete, ...]], Applied | None] = {}
        self._commutes: dict[tuple[int, Concrete], bool] = {}
        names = {instance.name: k for k, instance in enumerate(self.instances)}
        for pair in self.options.pairs:
            for name in pair:
                if name not in names:
                    raise SpecError(f"`set pairs`: no instance is called `{name}`", line=universe.pos.line)
        self.pairs = tuple((names[a], names[b]) for a, b in self.options.pairs)

    def _leaves(self) -> list[Leaf]:
        found: list[Leaf] = []
        for group, entry in enumerate(self.universe.inputs):
            for name in entry.names:
                found.append(Leaf(name, entry.shape, group, Typed("var", name, shape=entry.shape)))
        for constant in self.universe.constants:
            typed = elaborate(constant.body, self.spec, {})
            found.append(Leaf(constant.name, concrete(typed.shape), -1, typed))
        return found

    def applied(self, k: int, shapes: tuple[Concrete, ...]) -> Applied | None:
        """Instance number `k` at argument shapes, or None if it does not apply there."""
        key = k, shapes
        if key not in self._applied:
            self._applied[key] = self._apply(self.instances[k], shapes)
        return self._applied[key]

    def _apply(self, instance: s.Instance, shapes: tuple[Concrete, ...]) -> Applied | None:
        known = dict(zip(instance.params, shapes))
        try:
            if instance.when is not None and holds(instance.when, Scope({}, known)) is not True:
                return None
            typed = elaborate(instance.body, self.spec, known)
        except (ShapeError, SpecError) as error:
            if isinstance(error, SpecError) and not _about_ranks(error):
                raise
            return None
        shape = concrete(typed.shape)
        if math.prod(shape) > self.options.limit or 0 in shape:
            return None
        return Applied(instance, shapes, typed, self.spec)

    def commutes(self, k: int, shape: Concrete) -> bool:
        """Whether an instance of two tensors of one shape gives the same either way round, seen on random data."""
        key = k, shape
        if key not in self._commutes:
            applied = self.applied(k, (shape, shape))
            rng = np.random.default_rng(5)
            a, b = (rng.integers(-9, 10, (4, *shape)) * 1.0 for _ in range(2))
            self._commutes[key] = applied is not None and bool(
                np.array_equal(applied.run([a, b], 1), applied.run([b, a], 1), equal_nan=True)
            )
        return self._commutes[key]

    def first_inputs(self, masks: np.ndarray) -> np.ndarray:
        """Which sets of inputs, one bit each, are the first ones of each class: the others are renamings of these."""
        groups = [leaf.group for leaf in self.leaves if leaf.group >= 0]
        low = sum(1 << k for k in range(len(groups) - 1) if groups[k] == groups[k + 1])
        return np.asarray(((masks >> 1) & ~masks & low) == 0)

    def samples(self, seed: int, count: int = 0) -> list[np.ndarray]:
        """One array (samples, *shape) per leaf, from a seeded generator; `count` samples instead of the universe's.

        Integers in -3..3 (sample 0), biased to negative ones (sample 1), and so on in turn; a lone number is one of
        2..9 and changes its sign from sample to sample; real universes get numbers between 0.15 and 4 in size.
        """
        count = count or self.options.samples
        out: list[np.ndarray] = []
        for number, leaf in enumerate(self.leaves):
            if leaf.group < 0:
                value = run_typed(leaf.typed, self.spec, {})
                out.append(np.broadcast_to(value, (count, *leaf.shape)).copy())
                continue
            rng = np.random.default_rng([seed, number])
            rows = [self._sample(rng, leaf, k) for k in range(count)]
            out.append(np.stack(rows))
        return out

    def _sample(self, rng: np.random.Generator, leaf: Leaf, k: int) -> np.ndarray:
        if self.options.real:
            values = np.exp(rng.uniform(np.log(0.15), np.log(4.0), leaf.shape))
            signs = rng.choice([-1.0, 1.0], leaf.shape) if k % 2 == 0 else rng.choice([-1.0, -1.0, 1.0], leaf.shape)
            return np.asarray(values if leaf.name in self.options.positive else values * signs)
        if leaf.shape == ():  # a lone number shows only one sign: it is positive in one sample and negative in the next
            return np.asarray(rng.integers(2, 10) * (1.0 if k % 2 == 0 else -1.0))
        low, high = (-3, 4) if k % 2 == 0 else (-3, 2)
        values = rng.integers(low, high, leaf.shape) * 1.0
        return np.abs(values) + 1 if leaf.name in self.options.positive else values


def _about_ranks(error: SpecError) -> bool:
    """Errors that only say that a condition or attribute makes no sense for tensors of this rank."""
    return any(words in error.problem for words in ("no axis", "lengths", "index out of range", "cannot compute"))


def _options(universe: s.Universe) -> Options:
    given: dict[str, Any] = {}
    for name, expr in universe.options:
        value = evaluate(expr, Scope())
        if name not in Options.__dataclass_fields__:
            known = ", ".join(Options.__dataclass_fields__)
            raise SpecError(
                f"universe `{universe.name}`: no option is called `{name}`; known are {known}", line=universe.pos.line
            )
        given[name] = bool(value) if name in ("real", "ground") else value
    return Options(**given)


def value_expr(value: Value) -> s.Expr:
    """The expression that is this value."""
    if isinstance(value, bool):
        return s.Name("true" if value else "false")
    if isinstance(value, tuple):
        return s.ListOf(tuple(map(value_expr, value)))
    if isinstance(value, str):
        return s.Str(value)
    if isinstance(value, float) and not float(value).is_integer():
        return (
            s.Num(value) if value in (float("inf"), float("-inf")) else s.Num(Fraction(value).limit_denominator(10**12))
        )
    return s.Num(Fraction(value))


Progress = Callable[[str, int, int], None]
