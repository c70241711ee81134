"""From a tiny universe to a rules file: proved rules, none twice, the same bytes whoever computes them."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from taso.errors import UsageError
from taso.generate import generate
from taso.generate.candidates import Candidate
from taso.generate.directions import directions
from taso.generate.generate import GenerateResult, generate_rules
from taso.generate.minimise import Derivation
from taso.prove.prover import prove_rule
from taso.resources import PACKAGE, opspec_dir
from taso.rules.recheck import recheck
from taso.rules.text import read_rules
from taso.spec.parse import parse_rule
from taso.spec.spec import Spec, read_spec
from tests.generate.universes import MATRICES, TINY


def spec_with(*universes: str) -> Spec:
    """The shipped operators with these universes only."""
    spec = read_spec([opspec_dir()])
    spec.universes.clear()
    for k, text in enumerate(universes):
        spec.add(text, f"{k}.universe")
    return spec


@cache
def matrices() -> tuple[Spec, GenerateResult]:
    spec = spec_with(MATRICES)
    return spec, generate_rules(spec=spec, ops=2, processes=1)


def test_every_rule_is_proved_again_and_says_how_it_was_proved() -> None:
    spec, result = matrices()
    assert result.rules
    for rule in result.rules:
        verdict = prove_rule(rule, spec)
        assert (verdict.status, verdict.conditions) == ("proved", ()), rule
        assert rule.ranks is not None and verdict.ranks is not None
        assert set(rule.ranks.choices) == set(verdict.ranks.choices)
        assert rule.records[0] == f"proved index-terms, all sizes; {'exact' if verdict.exact else 'real'}"
        assert rule.records[1].split() == ["found", "matrices", "@", rule.records[1].split()[3], "ops"]


def test_known_rules_are_found() -> None:
    found = {(rule.source, rule.target) for rule in matrices()[1].rules}
    for text in (
        "relu(relu(a)) ==> relu(a)",
        "matmul(matmul(a, b), c) ==> matmul(a, matmul(b, c))",
        "add(matmul(a, b), matmul(a, c)) ==> matmul(a, add(b, c))",
        "add(a, matmul(a, b)) ==> matmul(a, add(b, identity_matrix(; size = dim(a, 1))))",
    ):
        rule = parse_rule(text)
        assert (rule.source, rule.target) in found, text


def test_no_rule_follows_from_those_before_it() -> None:
    spec, result = matrices()
    kept = Derivation(spec)
    for rule in result.rules:
        names = rule.ranks.names if rule.ranks else ()
        if rule.ranks and all(rank == 2 for rank in rule.ranks.choices[0]):
            assert not kept.derives(rule.source, rule.target, {name: (2, 2) for name in names}), rule
        kept.add(rule)


def test_the_funnel_loses_nothing() -> None:
    (funnel,) = matrices()[1].funnels
    assert funnel.kept == len(matrices()[1].rules)
    assert funnel.candidates == funnel.equalities.distinct
    assert funnel.directions == funnel.derived + funnel.refuted + funnel.unknown + funnel.duplicates + funnel.kept
    for count in (funnel.terms, funnel.equalities.equal, funnel.equalities.patterns, funnel.directions, funnel.kept):
        assert f" {count} " in funnel.line()


def test_the_file_says_where_it_comes_from_and_stands_up_to_a_recheck(tmp_path: Path) -> None:
    spec = spec_with(TINY)
    reported: list[tuple[str, int, int]] = []
    result = generate_rules(
        spec=spec, ops=2, processes=1, out_dir=tmp_path, progress=lambda *step: reported.append(step)
    )
    (path,) = result.files
    first, second, *_ = path.read_text().splitlines()
    assert f"spec {spec.hash}" in first and "--ops 2" in first and f"{len(result.rules)} rules" in first
    assert second == f"# {result.funnels[0].line()}"
    entries = read_rules(path)
    assert [entry.rule for entry in entries] == result.rules
    assert all(recheck(entry, spec).ok for entry in entries)
    count = result.funnels[0].directions
    proofs = [step for step in reported if step[0] == "tiny"]
    assert proofs == [("tiny", position, count) for position in range(count)]
    assert {step[0] for step in reported} == {"tiny", "tiny, 1 operators", "tiny, 2 operators"}


def test_rules_of_one_universe_serve_the_next() -> None:
    both = generate_rules(spec=spec_with(MATRICES, TINY), ops=2, processes=1)
    assert [funnel.universe for funnel in both.funnels] == ["matrices", "tiny"]
    assert both.funnels[1].kept == 0
    assert both.funnels[1].derived + both.funnels[1].duplicates == both.funnels[1].directions > 0


def test_an_unknown_universe_is_named() -> None:
    with pytest.raises(UsageError, match="'nowhere'; there are tiny"):
        generate_rules(spec=spec_with(TINY), universes=["nowhere"])


SCRIPT = """
import sys
from pathlib import Path
from tests.generate.test_generate import generate_rules, spec_with
from tests.generate.universes import HALVES
if __name__ == "__main__":
    generate_rules(spec=spec_with(HALVES), processes=int(sys.argv[2]), out_dir=Path(sys.argv[1]))
"""


def test_bytes_depend_neither_on_hashes_nor_on_processes(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    written = []
    for seed, processes in (("1", "1"), ("2", "2")):
        env = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(PACKAGE.parent)}
        subprocess.run([sys.executable, str(script), str(tmp_path / seed), processes], env=env, check=True)
        written.append((tmp_path / seed / "core.rules").read_bytes())
    assert written[0] == written[1]
    assert b"{matmul(a, b), matmul(a, c)}" in written[0]


# --- turns

LEAPS = {0: (0, 9), 1: (1, 3), 2: (3, 9), 3: (2, 4), 4: (5, 9), 5: (1, 2), 6: (2, 9), 7: (0, 1), 8: (3, 4), 9: (9, 9)}


class Rules:
    """A derivation of numbers, with a whim: number k follows from as many rules as lie within LEAPS[k]."""

    def __init__(self) -> None:
        self.rules: list[int] = []

    def derives(self, source: Any, target: Any, shapes: Any) -> bool:
        low, high = LEAPS[source]
        return low < len(self.rules) <= high


def kept(processes: int) -> tuple[list[int], int]:
    """The numbers that were kept, and how many tasks were begun."""
    derivation, begun = Rules(), list[Any]()
    pool = SimpleNamespace(
        processes=processes, submit=lambda c: begun.append(c) or SimpleNamespace(cancel=lambda: None, of=c)
    )
    queue: list[Any] = [SimpleNamespace(source=k, target=k, shapes={}) for k in LEAPS]
    for candidate, task in generate._in_turn(queue, derivation, pool):  # type: ignore[arg-type]
        if task is not None:
            assert task.of is candidate  # type: ignore[attr-defined]
            derivation.rules.append(candidate.source)  # type: ignore[arg-type]
    return derivation.rules, len(begun)


def test_what_is_kept_does_not_depend_on_what_was_begun_ahead() -> None:
    """Also where a number stops to follow when there are more rules, as a search with a limit may have it."""
    one_by_one = Rules()
    for k in LEAPS:
        if not one_by_one.derives(k, k, {}):
            one_by_one.rules.append(k)
    results = [kept(processes) for processes in (1, 2, 3, 16)]
    assert all(rules == one_by_one.rules for rules, _ in results)
    assert 0 < len(one_by_one.rules) < len(LEAPS)
    assert results[-1][1] > len(one_by_one.rules)  # else nothing was begun in vain, and this tests nothing


# --- directions

SPEC = read_spec([opspec_dir()])


def ways(text: str, ops: int = 3) -> str:
    """Which of the two ways round are taken: `>` as written, `<` the other."""
    rule = parse_rule(text)
    candidate = Candidate(rule.source, rule.target, "u", 2, (0, 0), {})
    sides = {(rule.source, rule.target): ">", (rule.target, rule.source): "<"}
    return "".join(sides[one.source, one.target] for one in directions(candidate, ops, SPEC))


@pytest.mark.parametrize(
    ("text", "taken"),
    [
        ("matmul(matmul(a, b), c) ==> matmul(a, matmul(b, c))", "><"),
        ("relu(relu(a)) ==> relu(a)", ">"),  # one operator is not written as two
        ("transpose(transpose(a; perm = [1, 0]); perm = [1, 0]) ==> a", ">"),  # a tensor matches everywhere
        ("mul(a, sub(b, b)) ==> sub(b, b)", ""),  # a tensor with itself
        ("add(a, matmul(a, b)) ==> matmul(a, add(b, identity_matrix(; size = 2)))", ">"),  # no constant on the left
        ("matmul(a, add(b, c)) ==> add(matmul(a, b), matmul(a, c))", "><"),
        ("sub(add(a, b), b) ==> relu(sub(add(a, c), c))", ""),  # neither side has all tensors
    ],
)
def test_ways_round_that_can_be_of_use(text: str, taken: str) -> None:
    assert ways(text) == taken


@pytest.mark.parametrize(
    ("text", "ops"),
    [
        ("relu(neg(relu(neg(a)))) ==> neg(relu(neg(a)))", 3),  # one operator more than was enumerated
        ("relu(matmul(matmul(a, b), relu(c))) ==> matmul(matmul(a, b), relu(c))", 3),
        # a second output adds two; `b @ c`, which both outputs of the left side use, is one operator
        (
            "{relu(@(a, @(b, c))), neg(add(a, @(b, c)))} ==> {relu(@(b, @(a, c))), neg(add(a, @(c, b)))}".replace(
                "@", "matmul"
            ),
            3,
        ),
    ],
)
def test_candidates_are_at_most_one_operator_larger_than_what_was_enumerated(text: str, ops: int) -> None:
    assert ">" in ways(text, ops)
    assert ways(text, ops - 1) == ""


def test_a_right_side_that_grows_brings_no_constant() -> None:
    turned = "transpose(transpose({}; perm = [1, 0]); perm = [1, 0])"
    assert ways(f"relu(relu(a)) ==> relu({turned.format('a')})") == "><"
    assert ways(f"relu(relu(a)) ==> relu({turned.format('mul(a, identity_matrix(; size = 2))')})") == ""
    assert ways("relu(relu(a)) ==> relu(mul(a, identity_matrix(; size = 2)))") == ">"  # it does not grow


def test_a_right_side_that_grows_is_not_all_element_by_element() -> None:
    assert ways("mul(add(a, b), c) ==> add(mul(a, c), mul(b, c))") == "<"
    # a factor for each column may go on into the weights of what makes `a` and `b`
    column = "broadcast(v; dims = [1])"
    assert ways(f"mul(add(a, b), {column}) ==> add(mul(a, {column}), mul(b, {column}))") == "><"
