"""Patterns against graphs."""

from __future__ import annotations

import numpy as np
import pytest

from taso.algebra.poly import var
from taso.errors import SpecError
from taso.graph.graph import Value
from taso.search.match import Bindings, explain, match_macro, match_term
from taso.search.uniform import uniform
from taso.spec import syntax as s
from taso.spec.parse import parse, parse_term
from tests.search.graphs import Bench


@pytest.fixture
def bench() -> Bench:
    made = Bench()
    made.input("x", 2, 4, 8, 8)
    made.input("y", 2, 4, 8, 8)
    made.constant("f", 4, 4, 3, 3)
    made.constant("v", 4)
    return made


def found(bench: Bench, pattern: str, value: Value) -> list[Bindings]:
    return list(match_term(parse_term(pattern), value, bench.spec))


def names(bindings: Bindings, bench: Bench) -> dict[str, str]:
    called = {value: name for name, value in bench.tensors.items()}
    return {name: called.get(value, "?") for name, value in bindings.tensors.items()}


def test_a_tensor_name_means_one_value(bench: Bench) -> None:
    assert len(found(bench, "mul(a, a)", bench.value("mul(x, x)"))) == 1
    assert found(bench, "mul(a, a)", bench.value("mul(x, y)")) == []


def test_symmetric_operators_match_in_both_orders(bench: Bench) -> None:
    both = found(bench, "add(a, b)", bench.value("add(x, y)"))
    assert sorted(tuple(names(b, bench).values()) for b in both) == [("x", "y"), ("y", "x")]
    assert len(found(bench, "sub(a, b)", bench.value("sub(x, y)"))) == 1
    (only,) = found(bench, "add(relu(a), b)", bench.value("add(x, relu(y))"))
    assert names(only, bench) == {"a": "y", "b": "x"}


def test_attributes_bind_and_are_compared(bench: Bench) -> None:
    value = bench.value("conv(x, f; before = 1, after = 2)")
    (one,) = found(bench, "conv(x, f; before = b, after = a)", value)
    assert dict(one.attrs) == {"b": (1, 1), "a": (2, 2)}
    assert len(found(bench, "conv(x, f; before = 1, after = [2, 2])", value)) == 1
    assert found(bench, "conv(x, f; before = b)", value) == []  # `after` is left out, so it is 0
    assert found(bench, "conv(x, f; before = b, after = b)", value) == []
    assert len(found(bench, "conv(x, f; before = b, after = 2 * b)", value)) == 1


def test_an_equation_waits_for_names_that_are_bound_later(bench: Bench) -> None:
    value = bench.value("mul(slice(x; axis = 1, start = 1, stop = 3), slice(x; axis = 1, start = 2, stop = 4))")
    pattern = "mul(slice(a; axis = 1, start = s - 1, stop = t - 1), slice(a; axis = 1, start = s, stop = t))"
    assert [dict(b.attrs) for b in found(bench, pattern, value)] == [{"s": 2, "t": 4}]
    assert found(bench, pattern.replace("t - 1", "t - 2"), value) == []


def test_negative_axes_count_from_the_end(bench: Bench) -> None:
    value = bench.value("concat(x, y; axis = 3)")
    assert len(found(bench, "concat(a, b; axis = -1)", value)) == 1
    assert found(bench, "concat(a, b; axis = -2)", value) == []


def test_a_shape_that_is_left_out_is_any(bench: Bench) -> None:
    value = bench.value("add(x, broadcast(v; dims = [1]))")
    (one,) = found(bench, "add(a, broadcast(b; dims = [k]))", value)
    assert dict(one.attrs) == {"k": 1} and names(one, bench) == {"a": "x", "b": "v"}
    assert len(found(bench, "add(a, broadcast(b; dims = [1], shape = shape(a)))", value)) == 1
    assert found(bench, "add(a, broadcast(b; dims = [0]))", value) == []


def test_symbolic_sizes_must_be_known_to_agree() -> None:
    bench = Bench()
    bench.input("z", var("n"), 4)
    bench.constant("v", 4)
    value = bench.value("add(z, broadcast(v; dims = [1]))")
    assert len(found(bench, "add(a, broadcast(b; dims = [1], shape = [dim(a, 0), 4]))", value)) == 1
    assert found(bench, "add(a, broadcast(b; dims = [1], shape = [2, 4]))", value) == []


@pytest.mark.parametrize(
    ("text", "number"),
    [("3", 3.0), ("-0.5", -0.5), ("`1 / 6`", 1 / 6), ("`sqrt(2)`", 2**0.5)],
)
def test_a_number_matches_a_constant_of_equal_elements(bench: Bench, text: str, number: float) -> None:
    value = bench.arena.filled(number, (2, 4, 8, 8), "float")
    product = bench.arena.apply("mul", (bench.tensors["x"], value), {})
    assert len(found(bench, f"mul(a, {text})", product)) == 1
    assert found(bench, "mul(a, 7)", product) == []


def test_numbers_are_seen_through_what_repeats_and_computes(bench: Bench) -> None:
    bench.tensors["two"] = bench.arena.constant(np.full((4,), 2, np.float32), "float")
    assert uniform(bench.value("add(mul(two, two), 1)"), bench.spec) == 5.0
    assert uniform(bench.value("reshape(concat(two, two; axis = 0); shape = [2, 4])"), bench.spec) == 2.0
    assert uniform(bench.tensors["v"], bench.spec) is None
    assert uniform(bench.tensors["x"], bench.spec) is None
    (one,) = found(bench, "mul(a, `k`)", bench.value("mul(v, add(two, 1))"))
    assert one.attrs["k"] == 3.0


@pytest.mark.parametrize("name", ["softmax", "gelu", "hard_swish", "leaky_relu", "silu", "hard_sigmoid", "batch_norm"])
def test_a_macro_matches_what_it_expands_to(bench: Bench, name: str) -> None:
    macro = bench.spec.macros[name]
    for k, param in enumerate(macro.params[1:]):
        bench.constant(f"p{k}", 4)
        assert param.dims[0].value == macro.params[1].dims[0].value
    args = ", ".join(["x", *(f"p{k}" for k in range(len(macro.params) - 1))])
    value = bench.value(f"{name}({args})")
    bindings = next(match_macro(macro, value, bench.spec))
    assert bindings.tensors[macro.params[0].name] == bench.tensors["x"]
    assert set(bindings.attrs) >= {attr.name for attr in macro.attrs}
    assert len(found(bench, f"{name}({args})", value)) >= 1
    assert found(bench, f"{name}({args})", bench.value("relu(x)")) == []


def test_the_axis_of_a_macro_is_bound(bench: Bench) -> None:
    value = bench.value("softmax(x; axis = 1)")
    assert [b.attrs["axis"] for b in match_macro(bench.spec.macros["softmax"], value, bench.spec)] == [1]
    assert found(bench, "softmax(a)", value) == []
    assert [dict(b.attrs) for b in found(bench, "softmax(a; axis = k)", value)] == [{"k": 1}]


def test_an_operator_of_a_rule_must_be_there_even_if_it_would_change_nothing(bench: Bench) -> None:
    value = bench.value("relu(x)")
    assert found(bench, "relu(reshape(a; shape = shape(a)))", value) == []
    assert found(bench, "relu(pad(a; before = 0, after = 0))", value) == []


def test_an_operator_of_a_macro_that_would_change_nothing_may_be_absent(bench: Bench) -> None:
    (macro,) = parse("macro framed(x[*s]) = relu(reshape(x; shape = shape(x)))")
    assert isinstance(macro, s.Macro)
    (absent,) = match_macro(macro, bench.value("relu(x)"), bench.spec)
    assert absent.tensors["x"] == bench.tensors["x"]


def test_matching_an_unknown_operator_is_an_error(bench: Bench) -> None:
    with pytest.raises(SpecError, match="no operator is called"):
        found(bench, "ad(a, b)", bench.value("add(x, y)"))
    with pytest.raises(SpecError, match="needs the attribute `axis`"):
        found(bench, "concat(a, b)", bench.value("concat(x, y; axis = 1)"))


def test_a_failed_match_is_explained(bench: Bench) -> None:
    value = bench.value("relu(conv(x, f; before = 1, after = 1))")
    assert explain(parse_term("relu(conv(a, b; before = 1, after = 1))"), value, bench.spec) == []
    assert explain(parse_term("relu(add(a, b))"), value, bench.spec) == [
        "inside relu: add is expected where the graph has conv"
    ]
    assert "attributes of conv differ" in explain(parse_term("relu(conv(a, b))"), value, bench.spec)[0]
