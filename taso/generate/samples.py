"""Random sizes, attributes and tensors on which the left side of a rule is defined, kept to try many right sides on."""

from __future__ import annotations

import random
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from taso.errors import ShapeError, SpecError
from taso.prove.refute import divides, draw, typed_sources, wrong_place
from taso.spec import lower
from taso.spec import syntax as s
from taso.spec.evaluate import Scope, holds
from taso.spec.spec import Spec


@dataclass(frozen=True)
class Sample:
    """One input and what the left side makes of it; `divides` if that is not defined everywhere."""

    tensors: dict[str, np.ndarray[Any, Any]]
    attrs: dict[str, Any]
    outputs: tuple[np.ndarray[Any, Any], ...]
    divides: bool


def sample_left(rule: s.Rule, spec: Spec, *, count: int = 8, seed: int = 1) -> list[Sample]:
    """Up to `count` samples of a rule's left side under its conditions; the same for the same rule and seed."""
    instances = typed_sources(rule, spec, 4, 64)
    rng, found = random.Random(seed), list[Sample]()
    partial = any(divides(term, spec) for term in rule.source)
    for k in range(30 * count if instances else 0):
        drawn = draw(rule, instances[k % len(instances)], rng)
        if drawn is None:
            continue
        tensors, attrs = drawn
        try:
            with warnings.catch_warnings(), np.errstate(all="ignore"):
                warnings.simplefilter("ignore")
                outputs = tuple(np.asarray(lower.run_term(term, spec, tensors, attrs)) for term in rule.source)
        except (ShapeError, SpecError, ZeroDivisionError):
            continue
        found.append(Sample(tensors, attrs, outputs, partial))
        if len(found) == count:
            break
    return found


def agrees(target: Sequence[s.Term], where: Sequence[s.Expr], samples: Sequence[Sample], spec: Spec) -> bool:
    """Whether a right side gives the left side's values, where these are defined, on all samples that satisfy its
    conditions.

    At least one sample must satisfy them.
    """
    used = 0
    for sample in samples:
        scope = Scope(sample.attrs, {name: tensor.shape for name, tensor in sample.tensors.items()})
        if not _hold(where, scope):
            continue
        used += 1
        for term, left in zip(target, sample.outputs):
            try:
                with warnings.catch_warnings(), np.errstate(all="ignore"):
                    warnings.simplefilter("ignore")
                    right = np.asarray(
                        lower.run_term(term, spec, sample.tensors, sample.attrs, result_shape=left.shape)
                    )
            except (ShapeError, SpecError, ZeroDivisionError):
                return False
            if right.shape != left.shape or wrong_place(left, right, sample.divides) is not None:
                return False
    return used > 0


def _hold(where: Sequence[s.Expr], scope: Scope) -> bool:
    try:
        return all(holds(condition, scope) is True for condition in where)
    except SpecError:
        return False
