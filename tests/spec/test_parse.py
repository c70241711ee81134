"""The grammar: what is written becomes the tree that is meant, and mistakes are named with their place."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest

from taso.errors import SpecError
from taso.resources import opspec_dir
from taso.spec import syntax as s
from taso.spec.parse import _READABLE, _parser, parse, parse_expr, parse_file, parse_rule, parse_term
from taso.spec.spec import Spec, read_spec

MATMUL = """# Rows times columns.
op matmul(a[*b, m, k], c[*b, k, n]) -> [*b, m, n]
    out[*b, i, j] = sum(l < k) a[*b, i, l] * c[*b, l, j]
    onnx MatMul(a, c) since 1
"""


def test_an_operator() -> None:
    (op,) = parse(MATMUL)
    assert isinstance(op, s.Operator)
    assert op.name == "matmul" and op.doc == "Rows times columns." and op.pos == s.Pos(2, 1)
    assert [param.name for param in op.params] == ["a", "c"]
    assert [item.starred for item in op.params[0].dims] == [True, False, False]
    assert isinstance(op.body, s.Reduce) and op.body.binders == (s.Binder("l", False, s.Name("k")),)
    assert op.onnx[0].op_type == "MatMul" and op.onnx[0].since == 1 and op.onnx[0].until is None


def test_attributes_and_clauses() -> None:
    (op,) = parse(
        "op f(x[*p:axis, m]; axis: axis, k: ints(p) = 1, r: real = -inf) -> [*p, m]\n"
        "require k >= 1, axis > 0 require m > 1\n"
        "out[*i, j] = x[*i, j | 0] identity when k == 1 implicit x\n"
        'onnx F(x, none, ints([1]); k = k) broadcasting since 2 until 9 in "d" when m > 2'
    )
    assert isinstance(op, s.Operator)
    assert [(a.name, a.type, a.like) for a in op.attrs] == [
        ("axis", "axis", None),
        ("k", "ints", "p"),
        ("r", "real", None),
    ]
    assert op.params[0].dims[0].length == s.Name("axis")
    assert len(op.requires) == 3 and op.identity is not None and op.implicit == s.Var("x")
    (form,) = op.onnx
    assert (form.since, form.until, form.domain, form.broadcasting, form.variadic) == (2, 9, "d", True, False)
    assert [arg.kind for arg in form.args] == ["tensor", "none", "ints"]


def test_imports_macros_axioms_universes() -> None:
    items = parse(
        "import Split(x, split: ints; axis = 0, num) since 13 when axis in [0, 1] = slice(x; axis = axis)\n"
        "import Concat(xs...; axis) since 4 = fold(concat, xs; axis = axis)\n"
        "macro f(x[*s]) = if rank(x) == 1 then x else add(x, 0.5) form x\n"
        "axiom add(a, b) == add(b, a) where rank(a) == 1 ranks (a, b) in [(1, 1)]\n"
        "universe u input a, b [2, 3] const one = ones(; shape = [2])\n"
        "  apply f(x) when rank(x) == 2 = relu(x) set seed = 3\n"
    )
    split, concat, macro, axiom, universe = items
    assert isinstance(split, s.Import) and split.attrs == (("axis", s.Num(Fraction(0))), ("num", None))
    assert [param.kind for param in split.params] == ["tensor", "ints"]
    assert isinstance(concat, s.Import) and isinstance(concat.body, s.Fold) and concat.params[0].kind == "variadic"
    assert isinstance(macro, s.Macro) and isinstance(macro.body, s.Choose) and macro.forms == (s.Var("x"),)
    assert isinstance(axiom, s.Axiom) and axiom.ranks == s.Ranks(("a", "b"), ((1, 1),))
    assert isinstance(universe, s.Universe) and universe.inputs[0].names == ("a", "b")
    assert [one.name for one in (*universe.constants, *universe.instances)] == ["one", "f"]


def test_a_rule() -> None:
    rule = parse_rule("{f(x), g(x; k = n)} ==> {h(x), x} where n >= 2\n  proved somehow, all; 3 ms\n  found u @ 2")
    assert rule.name == "r" and len(rule.source) == len(rule.target) == 2 and len(rule.where) == 1
    assert rule.records == ("proved somehow, all; 3 ms", "found u @ 2")
    assert parse_rule("rule m1 f(x) ==> x").name == "m1"
    with pytest.raises(SpecError, match="2 outputs on the left and 1 on the right"):
        parse_rule("{f(x), g(x)} ==> x")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1 + 2 * 3", s.Bin("+", s.Num(Fraction(1)), s.Bin("*", s.Num(Fraction(2)), s.Num(Fraction(3))))),
        ("-x", s.Neg(s.Name("x"))),
        ("-2", s.Num(Fraction(-2))),
        ("1.25", s.Num(Fraction(5, 4))),
        ("a ++ [b, *c]", s.Bin("++", s.Name("a"), s.ListOf((s.Name("b"), s.Star(s.Name("c")))))),
        ("not a < b", s.Logic("not", (s.Cmp("<", s.Name("a"), s.Name("b")),))),
        ("a == 1 or b in [2] and c != 3", None),
        ("if a < b then a else b", s.If(s.Cmp("<", s.Name("a"), s.Name("b")), s.Name("a"), s.Name("b"))),
        ("max(a, b)", s.Call("max", (s.Name("a"), s.Name("b")))),
        ("max(i < n) x[i]", s.Reduce("max", (s.Binder("i", False, s.Name("n")),), s.Read("x", (s.Name("i"),)))),
    ],
)
def test_expressions(text: str, value: s.Expr | None) -> None:
    parsed = parse_expr(text)
    assert value is None or parsed == value
    if value is None:
        assert isinstance(parsed, s.Logic) and parsed.op == "or" and isinstance(parsed.operands[1], s.Logic)


def test_terms() -> None:
    assert parse_term("f(x, 3, -0.5, `n / 2`; k = [1])") == s.Apply(
        "f",
        (
            s.Var("x"),
            s.Literal(s.Num(Fraction(3))),
            s.Literal(s.Num(Fraction(-1, 2))),
            s.Literal(s.Bin("/", s.Name("n"), s.Num(Fraction(2)))),
        ),
        (("k", s.ListOf((s.Num(Fraction(1)),))),),
    )


@pytest.mark.parametrize(
    ("text", "line", "column", "message"),
    [
        ("op f(x[*s]) -> [*s]\n    out[*i] = x[*i", 2, 19, "unexpected end; expected "),
        ("op f(x[*s]) -> [*s]\n    out[*i] + x[*i]", 2, 13, "unexpected `+`; expected `=`"),
        ("op f(x[*s]; k: whole) -> [*s] out[*i] = x[*i]", 1, 13, "unknown attribute type `whole`"),
        ("op f(x[n]) -> [n] out[i] = sum(j <= n) x[j]", 1, 32, "a range is written `j < bound`"),
        ("import F(x: words) since 1 = x", 1, 10, "unknown input kind `words`"),
        ("axiom f(x) == x ranks (x, y) in [(1)]", 1, 17, "2 names but 1 ranks"),
        ("?", 1, 1, "unexpected `?`; expected `axiom`, `content`/`extent`, `import`, "),
        ("axiom f(x) = x", 1, 12, "unexpected `=`; expected `==`\n"),
        ("op f(x[*s]) > [*s]", 1, 13, "unexpected `>`; expected `->`\n"),
        ("import F(x.) since 1 = x", 1, 11, "unexpected `.`; expected `)`, `,`, `...`, `:` or `;`\n"),
        ("macro f(x[n]) = f(x", 1, 20, "unexpected end; expected `)`, `,` or `;`\n"),
        ("universe u const", 1, 17, "unexpected end; expected a name\n"),
    ],
)
def test_mistakes_have_a_place(text: str, line: int, column: int, message: str) -> None:
    with pytest.raises(SpecError) as caught:
        parse(text, "a.op")
    assert (caught.value.line, caught.value.column) == (line, column)
    assert message in str(caught.value) and str(caught.value).startswith(f"a.op:{line}:{column}: error: ")
    assert text.splitlines()[line - 1] in str(caught.value)


@pytest.mark.parametrize("start", ["start", "rule", "term", "cond"])
def test_every_token_has_a_name_that_a_person_writes(start: str) -> None:
    for terminal in _parser(start).terminals:
        if terminal.name not in _parser(start).ignore_tokens:
            assert terminal.name in _READABLE or terminal.pattern.type == "str"


def test_names_are_taken_once() -> None:
    spec = Spec()
    spec.add("op f(x[*s]) -> [*s] out[*i] = x[*i]", "a.op")
    with pytest.raises(SpecError, match=r"(?s)b.op:2:1: error: `f` is already declared"):
        spec.add("\nmacro f(x[*s]) = x", "b.op")
    spec.add("universe u input a [1]", "u.universe")
    with pytest.raises(SpecError, match="universe `u` is already declared"):
        spec.add("universe u input a [1]", "v.universe")
    with pytest.raises(SpecError, match="belong into a .rules file"):
        spec.add("rule r f(x) ==> x", "c.op")


def test_unreadable_files(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="no such file"):
        read_spec([tmp_path / "none.op"])
    bad = tmp_path / "bad.op"
    bad.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(SpecError, match="cannot be read"):
        read_spec([bad])
    with pytest.raises(SpecError, match="cannot be read"):
        parse_file(tmp_path)


def test_the_shipped_specification_is_read_and_has_a_hash_of_its_text(tmp_path: Path) -> None:
    spec = read_spec([opspec_dir()])
    assert {"matmul", "conv", "reshape"} <= spec.operators.keys() and len(spec.hash) == 12
    extra = tmp_path / "more.op"
    extra.write_text("op twice(x[*s]) -> [*s] out[*i] = 2 * x[*i]\n", encoding="utf-8")
    assert read_spec([opspec_dir(), extra]).hash != spec.hash
