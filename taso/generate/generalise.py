"""From an equality of two small concrete graphs to a schema that holds for all sizes.

The enumerator finds instances: a 3x3 kernel, stride 1, axis 1. Here every number in an attribute becomes a symbol, and
the numbers of the right side become expressions over those symbols and the sizes of the tensors. What was true of the
instance (stride == 1, pads that keep the size, ...) becomes a list of conditions. If the rule is proved under all of
them, they are dropped one by one as long as the proof goes through; what is left is the rule's `where`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from taso.errors import ShapeError, SpecError
from taso.generate.conditions import hypotheses, lifted, says_odd, says_symbol, whole_and_positive
from taso.generate.instance import Instance, type_instance
from taso.generate.samples import agrees, sample_left
from taso.generate.symbols import Symbols, distinct_sizes
from taso.generate.tidy import tidy
from taso.generate.writings import MODES, Choice, SchemaWriter, along_axes, choices
from taso.prove.prover import Verdict, prove_rule, refute_rule
from taso.spec import syntax as s
from taso.spec.elaborate import Typed
from taso.spec.spec import Spec
from taso.spec.value import Shape

MAX_PROOFS = 6  # writings of the right side that agree on samples and are tried to be proved
TRIES = 12  # random inputs tried on a writing that could not be proved


@dataclass(frozen=True)
class Schema:
    """A generalised rule with the verdict of its last proof."""

    rule: s.Rule
    verdict: Verdict


@dataclass(frozen=True)
class Failure:
    """Why an instance became no rule: `refuted` on other values or sizes, or `unknown` to the prover."""

    status: str
    reason: str


def generalise(
    source: Sequence[s.Term], target: Sequence[s.Term], shapes: Mapping[str, Shape], spec: Spec
) -> Schema | Failure:
    """The most general rule of which this equality is an instance, among those that the prover can show.

    Args:
        source, target: terms of core operators with concrete attributes, one for each output.
        shapes: the sizes of the tensors that the terms name.

    Raises:
        SpecError: an operator does not exist.
    """
    try:
        instance = type_instance(source, target, shapes, spec)
    except (ShapeError, SpecError) as error:
        return Failure("unknown", f"the instance cannot be typed: {error}")
    symbols = Symbols()
    for typed in (*instance.source, *instance.target):
        _learn_bounds(typed, symbols, spec)
    left = SchemaWriter(spec, lambda name, kind, value: s.Name(symbols.symbol(name, kind, value)), "literal").left(
        instance.source
    )
    instance.sizes = distinct_sizes(instance, left, symbols, spec)
    found = _find_target(instance, symbols, left, spec)
    if isinstance(found, Failure):
        return found
    rule, choice = found
    return _generalise_axes(instance, symbols, choice, _weaken(rule, spec), spec)


def _learn_bounds(typed: Typed, symbols: Symbols, spec: Spec) -> None:
    if typed.kind == "apply":
        symbols.bound(spec.declared(typed.head))
    for arg in typed.args:
        _learn_bounds(arg, symbols, spec)


def _find_target(
    instance: Instance, symbols: Symbols, left: tuple[s.Term, ...], spec: Spec
) -> tuple[s.Rule, Choice] | Failure:
    """The first writing of the right side that is proved, under the most general conditions that allow any."""
    written = list(choices(instance, symbols, spec))
    status, reason = "refuted", "on other sizes or values no writing of the right side agrees with the left side"
    for conditions in hypotheses(instance, symbols):
        samples = sample_left(s.Rule("r", left, left, tuple(conditions), instance.own_ranks), spec)
        proofs, fallback = 0, None
        for choice in written if samples else ():
            writer = SchemaWriter(spec, choice.numeric(symbols), "literal", shapes=choice.shapes)
            right = writer.right(instance.target)
            needed = whole_and_positive(choice.expressions.values())
            if not agrees(right, needed, samples, spec):
                continue
            rule = s.Rule("r", left, right, (*conditions, *needed), instance.own_ranks)
            verdict = prove_rule(rule, spec, refute_first=False, tries=TRIES)
            if verdict.status == "proved":
                if not verdict.conditions:
                    return rule, choice
                fallback = fallback or (replace(rule, where=(*rule.where, *lifted(verdict.conditions))), choice)
                continue
            status, reason = verdict.status, verdict.reason or str(verdict.counterexample or "")
            proofs += 1
            if proofs == MAX_PROOFS:
                break
        if fallback is not None:
            return fallback
    return Failure(status, reason)


def _weaken(rule: s.Rule, spec: Spec) -> s.Rule:
    """Drop conditions as long as the rule stays proved.

    First all that say what a symbol is are tried against what the sizes really need, then all that are left at once,
    then one by one.
    """
    bare = replace(rule, where=tuple(c for c in rule.where if not says_symbol(c) and not says_odd(c)))
    if len(bare.where) < len(rule.where):
        verdict = prove_rule(bare, spec, tries=0)
        if verdict.status == "proved":
            weaker = replace(bare, where=(*bare.where, *lifted(verdict.conditions)))
            if not verdict.conditions or _holds(weaker, spec):
                rule = weaker
    if len(rule.where) > 1 and _holds(replace(rule, where=()), spec):
        return replace(rule, where=())
    for condition in rule.where:
        fewer = replace(rule, where=tuple(c for c in rule.where if c != condition))
        if _holds(fewer, spec):
            rule = fewer
    return rule


def _holds(rule: s.Rule, spec: Spec) -> bool:
    """Whether a rule is proved as it stands."""
    if refute_rule(rule, spec, tries=8, first=True) is not None:  # which is quicker than to fail to prove it
        return False
    verdict = prove_rule(rule, spec, refute_first=False, tries=0)
    return verdict.status == "proved" and not verdict.conditions


def _generalise_axes(
    instance: Instance, symbols: Symbols, choice: Choice, rule: s.Rule, spec: Spec
) -> Schema | Failure:
    """Write axes as symbols, as they are or from the end: whichever is proved for the most ranks.

    The tidied rules are what is proved; untidied ones only count where no tidied one is proved.
    """
    variants = _axes_written(instance, symbols, choice, rule, spec)
    for written in ([tidy(variant, spec) for variant in variants], variants):
        best = _most_ranks(written, spec)
        if best is not None:
            return best
    for known in dict.fromkeys((tidy(rule, spec), rule)):
        verdict = prove_rule(known, spec)
        if verdict.status == "proved" and not verdict.conditions:
            return Schema(known, verdict)
    return Failure("unknown", verdict.reason)


def _axes_written(instance: Instance, symbols: Symbols, choice: Choice, rule: s.Rule, spec: Spec) -> list[s.Rule]:
    """The rule in each mode of writing axes, for more ranks."""
    found: dict[s.Rule, None] = {}
    for mode in MODES:
        structure: dict[tuple[str, Any], str] = {}
        writer = SchemaWriter(spec, choice.numeric(symbols), mode, structure, choice.shapes)
        left = writer.left(instance.source)
        on_left = dict(structure)
        right = writer.right(instance.target)
        if structure == on_left:  # else the right side has an axis that the left does not name
            variant = replace(rule, source=left, target=right, ranks=instance.more_ranks)
            found[along_axes(variant, instance, mode, structure)] = None
            found[variant] = None
    return list(found)


def _most_ranks(variants: Sequence[s.Rule], spec: Spec) -> Schema | None:
    """The first of the rules that are proved for the most ranks, if any is."""
    best: Schema | None = None
    most = 0
    for variant in variants:
        verdict = prove_rule(variant, spec, refute_first=False, tries=0)
        if verdict.status != "proved" or verdict.conditions or verdict.ranks is None:
            continue
        if len(verdict.ranks.choices) > most:
            best, most = Schema(replace(variant, ranks=verdict.ranks), verdict), len(verdict.ranks.choices)
    return best
