"""Searches for a counterexample: random small sizes, attributes and tensors that satisfy the left side."""

from __future__ import annotations

import itertools
import random
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from taso.algebra.poly import Poly, names
from taso.algebra.poly import evaluate as number
from taso.errors import ShapeError, SpecError
from taso.prove.bind import Instance, instances
from taso.prove.decide import Limits
from taso.prove.models import extended
from taso.prove.terms import Unsupported
from taso.prove.verdict import Counterexample
from taso.spec import lower
from taso.spec import syntax as s
from taso.spec.evaluate import Scope, holds
from taso.spec.spec import Spec
from taso.spec.value import Value

_LARGEST = 4096  # elements of a tensor


def refute_rule(
    rule: s.Rule, spec: Spec, *, tries: int = 64, seed: int = 20191027, max_rank: int = 4, max_instances: int = 64
) -> Counterexample | None:
    """A counterexample to a rule, or None if `tries` random inputs (over its ranks and axes in turn) show none.

    Raises:
        SpecError: the rule names something that does not exist.
    """
    found = typed_sources(rule, spec, max_rank, max_instances)
    return refute_instances(rule, spec, found, tries=tries, seed=seed)


def typed_sources(rule: s.Rule, spec: Spec, max_rank: int, max_instances: int) -> list[Instance]:
    """Instances of the left side alone."""
    found: list[Instance] = []
    starts, limits = rank_choices(rule), Limits()
    every = (i for start in starts for i in instances(rule, spec, start, max_rank, limits, source_only=True))
    try:
        for item in itertools.islice(every, max_instances):
            if isinstance(item, Instance):
                found.append(item)
    except Unsupported:
        pass
    return found


def rank_choices(rule: s.Rule) -> list[dict[str, Value]]:
    """The choices that `ranks` of a rule leaves; one without any if it has none."""
    if rule.ranks is None:
        return [{}]
    return [{f"rank {name}": rank for name, rank in zip(rule.ranks.names, choice)} for choice in rule.ranks.choices]


def refute_instances(
    rule: s.Rule,
    spec: Spec,
    sources: list[Instance],
    *,
    tries: int,
    seed: int,
    values_only: bool = False,
    first: bool = False,
) -> Counterexample | None:
    """As `refute_rule`, over given instances in turn, and the smallest of a few counterexamples.

    With `values_only` a right side that is not defined does not count: the rule may only lack a condition. With `first`
    the first counterexample will do.
    """
    if not sources:
        return None
    rng = random.Random(seed)
    order = list(sources)
    rng.shuffle(order)
    found: list[Counterexample] = []
    for instance in itertools.islice(itertools.cycle(order), tries):
        counterexample = _try(rule, spec, instance, rng)
        if counterexample is not None and (counterexample.place is not None or not values_only):
            found.append(counterexample)
            break
    if found and not first:
        small = sorted(sources, key=lambda i: (0 in i.ranks, sum(i.ranks), str(i.choices)))[:2]
        for instance in itertools.islice(itertools.cycle(small), 24):
            counterexample = _try(rule, spec, instance, rng, whole=True)
            if counterexample is not None and (counterexample.place is None) == (found[0].place is None):
                found.append(counterexample)
    return min(found, key=_weight, default=None)


def _weight(counterexample: Counterexample) -> tuple[int, int, int]:
    """How hard a counterexample is to read."""
    tensors = list(counterexample.tensors.values())
    return sum(t.size for t in tensors), sum(t.ndim == 0 for t in tensors), len(str(counterexample))


def _assignment(instance: Instance, rng: random.Random) -> dict[str, int] | None:
    """Values of all symbols that satisfy the hypotheses."""
    facts = tuple(instance.hypotheses())
    everything = [extent for shape in instance.shapes.values() for extent in shape] + list(
        _numbers(tuple(instance.attrs.values()))
    )
    free = sorted(set().union(*(names(q) for q in everything)))
    lows = instance.sizes.lows
    for _ in range(40):
        start = {name: lows.get(name, rng.choice((-1, 0, 1, 2))) for name in free if name in instance.sizes.reals}
        known = extended(start, facts, lows, rng)
        if known is not None:
            for name in free:
                if name not in known:
                    known[name] = lows.get(name, 1) + rng.choice((0, 0, 1, 1, 2, 3))
            return known
    return None


def _numbers(value: Value) -> Iterator[Poly]:
    if isinstance(value, tuple):
        for item in value:
            yield from _numbers(item)
    elif isinstance(value, Poly):
        yield value


def _concrete(value: Value, values: Mapping[str, int]) -> Value:
    if isinstance(value, tuple):
        return tuple(_concrete(v, values) for v in value)
    return number(value, values) if isinstance(value, Poly) else value


def _tensor(shape: tuple[int, ...], kind: int, rng: np.random.Generator) -> np.ndarray[Any, Any]:
    if kind == 0:
        return rng.integers(-3, 4, size=shape).astype(np.float64)
    if kind == 1:
        return rng.integers(-1, 2, size=shape).astype(np.float64)
    if kind == 2:
        return rng.integers(1, 5, size=shape).astype(np.float64)
    return np.round(rng.normal(size=shape) * 2, 2)


def _try(
    rule: s.Rule, spec: Spec, instance: Instance, rng: random.Random, whole: bool = False
) -> Counterexample | None:
    """One random input (of whole numbers, if asked)."""
    drawn = draw(rule, instance, rng, whole)
    return None if drawn is None else compare_sides(rule, spec, *drawn)


def draw(
    rule: s.Rule, instance: Instance, rng: random.Random, whole: bool = False
) -> tuple[dict[str, np.ndarray[Any, Any]], dict[str, Any]] | None:
    """Random tensors and attributes that satisfy the hypotheses of an instance, or None if this try finds none."""
    values = _assignment(instance, rng)
    if values is None:
        return None
    kind, seed = rng.randrange(2 if whole else 4), rng.randrange(1 << 30)
    generator = np.random.default_rng(seed)
    shapes = {name: tuple(int(_concrete(e, values)) for e in shape) for name, shape in instance.shapes.items()}
    attrs = {name: _concrete(value, values) for name, value in instance.attrs.items()}
    if any(int(np.prod(shape)) > _LARGEST or min(shape, default=1) < 1 for shape in shapes.values()):
        return None
    tensors = {name: _tensor(shape, kind, generator) for name, shape in shapes.items()}
    try:
        if not all(holds(condition, Scope(attrs, shapes)) for condition in rule.where):
            return None
    except SpecError:
        return None
    return tensors, attrs


def compare_sides(
    rule: s.Rule, spec: Spec, tensors: Mapping[str, np.ndarray[Any, Any]], attrs: Mapping[str, Any]
) -> Counterexample | None:
    """Run both sides on concrete tensors; None if they agree or the left side is not defined there."""
    instance_divides = any(divides(term, spec) for term in rule.source)
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for output, (left_term, right_term) in enumerate(zip(rule.source, rule.target)):
            try:
                left = np.asarray(lower.run_term(left_term, spec, tensors, attrs), dtype=np.float64)
            except (ShapeError, SpecError, ZeroDivisionError):
                return None
            try:
                right = np.asarray(
                    lower.run_term(right_term, spec, tensors, attrs, result_shape=left.shape), dtype=np.float64
                )
            except (ShapeError, SpecError, ZeroDivisionError) as error:
                if left.size == 0:
                    return None
                return Counterexample(dict(tensors), dict(attrs), output, None, "", _reason(error))
            if left.shape != right.shape:
                reason = f"its shape is {list(right.shape)}, the left side's {list(left.shape)}"
                return Counterexample(dict(tensors), dict(attrs), output, None, "", reason)
            wrong = wrong_place(left, right, instance_divides)
            if wrong is not None:
                return Counterexample(
                    dict(tensors), dict(attrs), output, wrong, float(left[wrong]), float(right[wrong])
                )
    return None


def _reason(error: Exception) -> str:
    return error.problem if isinstance(error, SpecError) else str(error)


def divides(term: s.Term, spec: Spec) -> bool:
    """Whether a term divides elements, or applies a function that is not defined everywhere."""
    if not isinstance(term, s.Apply):
        return isinstance(term, s.Choose) and (divides(term.then, spec) or divides(term.otherwise, spec))
    declared = spec.declared(term.op)
    own = divides(declared.body, spec) if isinstance(declared, s.Macro) else _divides_elements(declared.body)
    return own or any(divides(arg, spec) for arg in term.args)


def _divides_elements(expr: s.Expr) -> bool:
    match expr:
        case s.Bin(op, left, right):
            return op == "/" or _divides_elements(left) or _divides_elements(right)
        case s.Neg(inner):
            return _divides_elements(inner)
        case s.Call(function, args):
            return function in ("log", "sqrt", "pow") or any(map(_divides_elements, args))
        case s.Reduce(_, _, body):
            return _divides_elements(body)
        case s.If(_, then, otherwise):
            return _divides_elements(then) or _divides_elements(otherwise)
    return False


def wrong_place(left: np.ndarray[Any, Any], right: np.ndarray[Any, Any], divided: bool) -> tuple[int, ...] | None:
    """The first place where the values differ by more than rounding.

    Places where the left side is not defined pass: not a number, or infinite where it divides (without a division an
    infinite value is the maximum of nothing, which is a value like any other).
    """
    scale = max(1.0, float(np.max(np.abs(left[np.isfinite(left)]), initial=0.0)))
    close = (left == right) | (np.abs(left - right) <= 1e-7 * scale)
    bad = ~close & (np.isfinite(left) if divided else ~np.isnan(left))
    if not bad.any():
        return None
    return tuple(int(i) for i in np.argwhere(bad)[0])
