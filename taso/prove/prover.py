"""The entry point: prove a rule for all sizes by index terms, or refute it with a counterexample."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass

from taso.algebra.poly import var
from taso.errors import ShapeError, SpecError
from taso.prove.bind import Choices, Instance, instances, tensors_of
from taso.prove.decide import Limits
from taso.prove.equal import Equality
from taso.prove.facts import Fact, ge
from taso.prove.index import Elements
from taso.prove.match import OutOfSteps
from taso.prove.refute import rank_choices, refute_instances, typed_sources
from taso.prove.simple import normalised
from taso.prove.terms import Unsupported
from taso.prove.verdict import Counterexample, Verdict
from taso.spec import syntax as s
from taso.spec.spec import Spec

__all__ = ["Counterexample", "Verdict", "prove_rule", "refute_rule"]


_TOO_MANY = "more than"
_CHECKS = 4  # instances of a proved rule that are tried on random inputs all the same


@dataclass(frozen=True)
class _Outcome:
    """How one instance went."""

    choices: Choices
    ranks: tuple[int, ...]
    proved: bool
    conditions: tuple[s.Expr, ...]
    exact: bool
    reason: str


def prove_rule(
    rule: s.Rule,
    spec: Spec,
    *,
    max_rank: int = 4,
    rlimit: int = 400_000,
    refute_first: bool = True,
    max_instances: int = 600,
    tries: int = 200,
    seed: int = 20191027,
) -> Verdict:
    """Whether a rule holds for all sizes, numeric attributes and elements.

    Tried are the ranks that the rule names, else all up to `max_rank` for which its left side fits, and all values of
    its axes and permutations. Ranks for which the right side does not fit are left out of the verdict's `ranks`.

    Args:
        rlimit: the resource limit of one call of z3; never a time, so that a verdict does not depend on the machine.
        refute_first: try a few random inputs first; false rules are the slow ones.
        tries: how many random inputs are tried on a rule that could not be proved.
        max_instances: with more combinations of ranks and axes than this the answer is "unknown".

    Raises:
        SpecError: the rule names something that does not exist or that its left side does not bind.
    """
    start = time.perf_counter()
    check_names(rule, spec)

    def verdict(status: str, **fields: object) -> Verdict:
        return Verdict(status, seconds=time.perf_counter() - start, **fields)  # type: ignore[arg-type]

    sources: list[Instance] = []
    if refute_first:
        sources = typed_sources(rule, spec, max_rank, max_instances)
        found = refute_instances(rule, spec, sources, tries=8, seed=seed, values_only=True)
        if found is not None:
            return verdict("refuted", counterexample=found, reason=str(found))
    tried_rank = max_rank
    limits = Limits(rlimit)
    outcomes, reason = _outcomes(rule, spec, max_rank, limits, max_instances)
    while reason.startswith(_TOO_MANY) and rule.ranks is None and tried_rank > 2:  # fewer ranks are better than none
        tried_rank -= 1
        outcomes, reason = _outcomes(rule, spec, tried_rank, limits, max_instances)
    good = _proved_ranks(outcomes)
    if good and not reason:
        used = [o for o in outcomes if o.ranks in good]
        checked = random.Random(seed).sample(used, min(_CHECKS, len(used)))
        conditions = tuple(dict.fromkeys(c for o in used for c in o.conditions))
        tensors = tensors_of(rule.source)
        ranks = s.Ranks(tensors, tuple(good))
        found = (
            None
            if conditions
            else refute_instances(rule, spec, _retyped(rule, spec, checked), tries=_CHECKS, seed=seed + 1)
        )
        if found is not None:
            raise AssertionError(
                f"rule {rule.name} was proved and refuted: {found}"
            )  # the engines contradict each other
        return verdict("proved", ranks=ranks, conditions=conditions, exact=all(o.exact for o in used))
    found = None
    if tries:
        sources = sources or typed_sources(rule, spec, max_rank, max_instances)
        sources = [i for i in sources if rule.ranks is not None or max(i.ranks, default=0) <= tried_rank]
        found = refute_instances(rule, spec, sources, tries=tries, seed=seed + 2)
    if found is not None:
        return verdict("refuted", counterexample=found, reason=str(found))
    failed = next((o.reason for o in outcomes if not o.proved and not o.reason.startswith("right side")), "")
    failed = failed or next((o.reason for o in outcomes if not o.proved), "no ranks fit the left side")
    return verdict("unknown", reason=reason or failed)


def refute_rule(
    rule: s.Rule, spec: Spec, *, tries: int = 64, seed: int = 20191027, max_rank: int = 4, first: bool = False
) -> Counterexample | None:
    """A replayed counterexample, or None if random small inputs show none. Raises SpecError as `prove_rule`.

    The smallest of a few, or with `first` the first that is found.
    """
    check_names(rule, spec)
    return refute_instances(rule, spec, typed_sources(rule, spec, max_rank, 64), tries=tries, seed=seed, first=first)


def check_names(rule: s.Rule, spec: Spec) -> None:
    """Raise SpecError for an operator that does not exist or a tensor of the right side that the left side lacks."""
    known = tensors_of(rule.source)
    for name in tensors_of(rule.target):
        if name not in known:
            raise SpecError(
                f"the right side of rule {rule.name} uses the tensor `{name}`, which its left side does not have",
                hint=f"known are {', '.join(known)}",
            )

    def walk(term: s.Term) -> None:
        if isinstance(term, s.Apply):
            spec.declared(term.op, term.pos)
            for arg in term.args:
                walk(arg)

    for term in (*rule.source, *rule.target):
        walk(term)


def _outcomes(
    rule: s.Rule, spec: Spec, max_rank: int, limits: Limits, max_instances: int
) -> tuple[list[_Outcome], str]:
    """How each instance went, and why not all were tried (if so)."""
    outcomes: list[_Outcome] = []
    failed: set[tuple[int, ...]] = set()
    try:
        for start in rank_choices(rule):
            for item in instances(rule, spec, start, max_rank, limits):
                if len(outcomes) >= max_instances:
                    return outcomes, f"{_TOO_MANY} {max_instances} combinations of ranks and axes"
                if isinstance(item, tuple):
                    ranks = tuple(item[0][f"rank {name}"] for name in tensors_of(rule.source))
                    outcomes.append(_Outcome(item[0], ranks, False, (), False, f"right side: {item[1]}"))
                    failed.add(ranks)
                elif item.ranks not in failed:
                    outcome = _prove(item, spec)
                    outcomes.append(outcome)
                    if not outcome.proved:
                        return outcomes, _at(outcome)
    except Unsupported as error:
        return outcomes, str(error)
    return outcomes, ""


def _retyped(rule: s.Rule, spec: Spec, outcomes: list[_Outcome]) -> list[Instance]:
    """The left sides of instances, with no more hypotheses than they have on their own."""
    every = (i for o in outcomes for i in instances(rule, spec, o.choices, 0, Limits(), source_only=True))
    return [item for item in every if isinstance(item, Instance)]


def _at(outcome: _Outcome) -> str:
    fixed = ", ".join(f"{name} = {value}" for name, value in outcome.choices.items())
    return f"at {fixed}: {outcome.reason}" if fixed else outcome.reason


def _proved_ranks(outcomes: list[_Outcome]) -> list[tuple[int, ...]]:
    """The rank choices of which all instances were proved."""
    ranks = dict.fromkeys(o.ranks for o in outcomes)
    return [r for r in ranks if all(o.proved for o in outcomes if o.ranks == r)]


def _prove(instance: Instance, spec: Spec) -> _Outcome:
    """Prove one instance, output by output."""
    sizes = instance.sizes
    world = sizes.world()
    reason = _differ(instance, spec, Elements(world, spec, sizes))
    if reason and world.partial:
        # the rule only has to hold where its left side is defined: there, x / x is 1 on the left
        world.partial.clear()
        reason = reason if _differ(instance, spec, Elements(world, spec, sizes), defined=True) else ""
    exact = not reason and (
        not world.arithmetic or not _differ(instance, spec, Elements(world, spec, sizes, free=True))
    )
    conditions = tuple(sizes.expression(fact) for fact in sizes.conditions)
    return _Outcome(instance.choices, instance.ranks, not reason, conditions, exact, reason)


def _differ(instance: Instance, spec: Spec, elements: Elements, *, defined: bool = False) -> str:
    """Why the sides are not shown to be equal; empty if they are.

    With `defined` it is used that the left side is defined: what it divides by is not 0.
    """
    world = elements.world
    hypotheses = instance.sizes.known()
    equality = Equality(world)
    try:
        for left, right in zip(instance.source, instance.target):
            index = tuple(var(world.fresh("~i")) for _ in left.shape)
            ranges: list[Fact] = []
            for i, extent in zip(index, left.shape):
                ranges += [ge(i), ge(extent - 1 - i)]
            context = world.context([*hypotheses, *ranges])
            world.defined = defined
            a = normalised(elements.element(left, index, context), context)
            world.defined, known = False, set(world.partial)
            b = normalised(
                Elements(world, spec, elements.theory, elements.free).element(right, index, context), context
            )
            if not world.partial <= known:
                return "the right side divides (or takes a root or logarithm) where the left side does not"
            if not equality.sums(a, b, context):
                return f"what does not cancel: {equality.leftover[:300]}"
    except (Unsupported, ShapeError, SpecError) as error:
        return str(error)
    except (OutOfSteps, RecursionError):
        return "too many ways to match the sides"
    finally:
        world.defined = False
    return ""
