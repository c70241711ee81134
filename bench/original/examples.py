"""Concrete sizes for a rule: as different from each other as its left side and conditions allow."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from taso.algebra.poly import Poly, evaluate, names
from taso.errors import SpecError
from taso.prove.models import extended
from taso.prove.refute import typed_sources
from taso.spec import syntax as s
from taso.spec.evaluate import Scope, holds
from taso.spec.spec import Spec
from taso.spec.value import Value

_SIZES = (2, 3, 4, 5, 6, 7, 8, 9, 10, 11)
_ATTEMPTS = 400


@dataclass(frozen=True)
class Example:
    """Shapes of the tensors and values of the attributes for which both sides of a rule are defined."""

    shapes: Mapping[str, tuple[int, ...]]
    attrs: Mapping[str, object]


def examples(rule: s.Rule, spec: Spec, seed: int = 20191027) -> Iterator[Example]:
    """One example for each choice of ranks, if any is found. Group counts are above 1 where they can be."""
    for instance in typed_sources(rule, spec, 4, 64):
        rng = random.Random(seed)
        facts = tuple(instance.hypotheses())
        free = {name for shape in instance.shapes.values() for extent in shape for name in names(extent)}
        free |= {name for value in instance.attrs.values() for name in _names(value)}
        best: tuple[int, Example] | None = None
        for _ in range(_ATTEMPTS):
            sizes = list(_SIZES)
            rng.shuffle(sizes)
            start = {name: sizes[k % len(sizes)] for k, name in enumerate(sorted(free))}
            start |= {name: rng.choice((2, 3)) for name in free if name.startswith("~")}
            known = extended(start, facts, instance.sizes.lows, rng)
            if known is None:
                continue
            shapes = {name: tuple(int(_value(e, known)) for e in shape) for name, shape in instance.shapes.items()}
            attrs = {name: _value(value, known) for name, value in instance.attrs.items()}
            if _fits(rule, shapes, attrs):
                different = len({extent for shape in shapes.values() for extent in shape if extent > 1})
                if best is None or different > best[0]:
                    best = different, Example(shapes, attrs)
        if best is not None:
            yield best[1]


def _fits(rule: s.Rule, shapes: Mapping[str, tuple[int, ...]], attrs: Mapping[str, object]) -> bool:
    if any(extent < 1 for shape in shapes.values() for extent in shape):
        return False
    try:
        return all(holds(condition, Scope(dict(attrs), dict(shapes))) is True for condition in rule.where)
    except SpecError:
        return False


def _names(value: Value) -> Iterator[str]:
    if isinstance(value, tuple):
        for item in value:
            yield from _names(item)
    elif isinstance(value, Poly):
        yield from names(value)


def _value(value: Value, known: Mapping[str, int]) -> Value:
    if isinstance(value, tuple):
        return tuple(_value(item, known) for item in value)
    return evaluate(value, known) if isinstance(value, Poly) else value
