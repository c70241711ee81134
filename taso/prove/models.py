"""Small integer assignments that satisfy facts: each shows without a solver that something does not follow."""

from __future__ import annotations

import random
from collections.abc import Mapping
from functools import lru_cache

from taso.algebra.poly import Quantity, evaluate, names
from taso.prove.facts import Fact, Lows, solved

Model = dict[str, int]

WANTED = 12  # models kept per context
TRIES = 40  # at the root


def satisfies(model: Mapping[str, int], fact: Fact) -> bool | None:
    """Whether a fact holds in a model; None if the model does not say."""
    try:
        value = evaluate(fact.value, model)
    except (KeyError, ZeroDivisionError):
        return None
    return value == 0 if fact.equality else value >= 0


def extended(model: Model, facts: tuple[Fact, ...], lows: Lows, rng: random.Random) -> Model | None:
    """The model with values for the further names in `facts`, such that these hold; None if the attempt failed."""
    mentioned = {name for fact in facts for name in names(fact.value)}
    found = dict(model)
    for name in sorted(mentioned - model.keys(), key=lambda n: ("'" in n, n.startswith("~"), n)):
        value = _pick(name, [f for f in facts if name in names(f.value)], found, lows, rng)
        if value is None:
            return None
        found[name] = value
    return found if all(satisfies(found, fact) for fact in facts) else None


def _pick(name: str, facts: list[Fact], model: Model, lows: Lows, rng: random.Random) -> int | None:
    """A value between the bounds that the facts give as far as they are known; often one of the bounds."""
    low = lows.get(name, 0 if name.startswith("~") else 1)
    high: int | None = None
    for fact in facts:
        rest = _solved_for(name, fact.value)
        if rest is None:
            continue
        value = _value(rest, model)
        if value is None:
            continue
        if fact.equality:
            return value
        if fact.value.terms[(name,)] == 1:  # type: ignore[union-attr]
            low = max(low, value)
        else:
            high = value if high is None else min(high, value)
    if high is None:
        return low + rng.choice((0, 0, 1, 1, 2, 3, 5))
    if high < low:
        return None
    return rng.choice((low, high, rng.randint(low, high)))


@lru_cache(maxsize=1 << 16)
def _solved_for(name: str, value: Quantity) -> Quantity | None:
    """What a name is if a quantity is 0; the same facts are asked for model after model."""
    solution = solved(value, {name})
    return None if solution is None else solution[1]


def _value(value: Quantity, model: Model) -> int | None:
    try:
        return evaluate(value, model)
    except (KeyError, ZeroDivisionError):
        return None


def models_of(facts: tuple[Fact, ...], lows: Lows, rng: random.Random) -> list[Model]:
    """Models from nothing."""
    found: list[Model] = []
    for attempt in range(TRIES):
        model = extended({}, facts, lows, rng)
        if model is not None:
            found.append(model)
            if len(found) == WANTED:
                break
        elif attempt >= TRIES // 3 and not found:
            break
    return found


def refined(parents: list[Model], facts: tuple[Fact, ...], lows: Lows, rng: random.Random) -> list[Model]:
    """Models of a context that has further facts, from those of the context around it."""
    found: list[Model] = []
    for model in parents:
        for _ in range(2):
            more = extended(model, facts, lows, rng)
            if more is not None:
                found.append(more)
                break
    return found
