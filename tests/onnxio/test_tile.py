"""Covering graphs with nodes: originals, macros, implicit broadcasting, chains, and what is never computed twice."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from taso.algebra.poly import var
from taso.errors import ExportError
from taso.graph.graph import Arena, Graph, TensorType, Value
from taso.onnxio.context import Context
from taso.onnxio.tile import Tile, Tiler
from taso.spec.parse import parse_term
from taso.spec.spec import load_spec
from tests.onnxio.models import attribute, imported, model


class Drawing:
    """A graph made from terms, as a search makes them, over the inputs x, z [1, 4, 8, 8] and v [4] of type float."""

    def __init__(self, opset: int = 17) -> None:
        self.arena = Arena(load_spec())
        self.context = Context(model("agraph (float[1] x) => (float[1] x) {}", opset), self.arena, {"": opset})
        self.tensors: dict[str, Value] = {}
        for name, shape in (
            ("x", (1, 4, 8, 8)),
            ("z", (1, 4, 8, 8)),
            ("v", (4,)),
            ("free", (var("n"), 4, var("h"), 8)),
        ):
            self.tensors[name] = self.arena.input(name, TensorType("float", shape))
        rng = np.random.default_rng(0)
        for name, shape in (("k", (4, 4, 3, 3)), ("c", (4,)), ("d", (4,))):
            self.tensors[name] = self.arena.constant(rng.standard_normal(shape, np.float32), "float")

    def __call__(self, text: str) -> Value:
        return self.arena.build(parse_term(text), self.tensors, {}, "float")

    def tiles(self, *outputs: Value) -> list[Tile]:
        graph = Graph(outputs, tuple(self.tensors[name] for name in ("x", "z", "v", "free")))
        return Tiler(self.context, self.arena).cover(graph)

    def operators(self, *texts: str) -> list[str]:
        """What is written for terms, without constants."""
        return shown(self.tiles(*map(self, texts)))


def shown(tiles: Sequence[Tile]) -> list[str]:
    return [tile.template.op_type for tile in tiles if not tile.constant]


CONV = "conv(x, k; before = 1, after = 1)"


def test_a_bias_goes_into_the_convolution() -> None:
    assert Drawing().operators(f"add({CONV}, broadcast(c; dims = [1]))") == ["Conv"]


def test_a_bias_on_the_left_does_too() -> None:
    assert Drawing().operators(f"add(broadcast(c; dims = [1]), {CONV})") == ["Conv"]


def test_a_convolution_that_is_needed_itself_is_not_computed_twice() -> None:
    assert Drawing().operators(f"add({CONV}, broadcast(c; dims = [1]))", CONV) == ["Conv", "Add"]
    biases = [f"add({CONV}, broadcast({bias}; dims = [1]))" for bias in "cd"]
    assert Drawing().operators(*biases, f"relu({CONV})") == ["Conv", "Add", "Add", "Relu"]


def test_a_softmax_stays_one_where_its_maximum_is_needed_too() -> None:
    assert sorted(Drawing().operators("softmax(x)", "reduce_max(x; axes = [3])")) == ["ReduceMax", "Softmax"]


def test_layer_norms_of_one_tensor_stay_two() -> None:
    texts = [f"layer_norm(transpose(x; perm = [0, 2, 3, 1]), {scale}, v)" for scale in "cd"]
    assert Drawing().operators(*texts) == ["Transpose", "LayerNormalization", "LayerNormalization"]


def test_macros_are_for_their_opsets() -> None:
    text = "layer_norm(transpose(x; perm = [0, 2, 3, 1]), c, v)"
    written = Drawing(opset=16).operators(text)
    assert "LayerNormalization" not in written and len(written) > 5
    assert Drawing(opset=13).operators("hard_swish(x)") != ["HardSwish"]
    assert Drawing(opset=14).operators("hard_swish(x)") == ["HardSwish"]


def test_broadcasting_is_implicit() -> None:
    drawing = Drawing()
    tiles = drawing.tiles(drawing("mul(x, broadcast(v; dims = [1]))"))
    assert shown(tiles) == ["Reshape", "Mul"]  # an input of shape [4] has to become [4, 1, 1] first
    last = drawing.tiles(drawing("mul(transpose(x; perm = [0, 2, 3, 1]), broadcast(v; dims = [3]))"))
    assert shown(last) == ["Transpose", "Mul"]
    both = drawing("mul(broadcast(v; dims = [1], shape = [8, 4]), broadcast(v; dims = [1], shape = [8, 4]))")
    assert "Expand" in shown(drawing.tiles(both))  # [4] times [4] would not be [8, 4]


def test_a_number_is_a_scalar() -> None:
    drawing = Drawing()
    [tile] = drawing.tiles(drawing("mul(free, 2)"))
    assert tile.slots[1] is not None and tile.slots[1].shape == ()


def test_chains_are_one_node() -> None:
    drawing = Drawing()
    [tile] = drawing.tiles(
        drawing("concat(concat(x, z; axis = 1), concat(x, concat(z, z; axis = 1); axis = 1); axis = 1)")
    )
    assert tile.template.op_type == "Concat" and len(tile.slots) == 5 and attribute(tile.template, "axis") == 1
    assert drawing.operators("concat(concat(x, z; axis = 1), concat(x, z; axis = 1); axis = 2)") == ["Concat", "Concat"]


def test_a_chain_is_cut_where_a_part_is_needed() -> None:
    inner = "concat(x, z; axis = 1)"
    assert Drawing().operators(f"concat({inner}, x; axis = 1)", inner) == ["Concat", "Concat"]


def test_attributes_have_the_schemas_types() -> None:
    drawing = Drawing()
    [tile] = drawing.tiles(drawing("leaky_relu(x; alpha = 1)"))
    assert tile.template.op_type == "LeakyRelu" and attribute(tile.template, "alpha") == 1.0
    assert isinstance(attribute(tile.template, "alpha"), float)


def test_symbolic_shapes_are_written_where_they_can_be() -> None:
    drawing = Drawing()
    [tile] = drawing.tiles(drawing("reshape(free; shape = [dim(free, 0), 4, 8 * dim(free, 2)])"))
    assert tile.slots[1] is not None and np.asarray(tile.slots[1].node.payload).tolist() == [0, 4, -1]
    with pytest.raises(ExportError, match="writes broadcast"):
        drawing.tiles(drawing("broadcast(v; dims = [1], shape = [dim(free, 0), 4, dim(free, 2)])"))


def test_no_node_reads_a_constant_that_cannot_be_written() -> None:
    drawing = Drawing()
    tiler = Tiler(drawing.context, drawing.arena)
    assert tiler.options(drawing("add(free, broadcast(c; dims = [1], shape = shape(free)))"))  # Add repeats it
    joined = drawing("concat(broadcast(c; dims = [1], shape = shape(free)), free; axis = 1)")
    assert tiler.options(joined) == ()
    repeated = "broadcast({}; dims = [1], shape = shape(free))"
    both = f"concat({repeated.format('c')}, {repeated.format('d')}; axis = 1)"
    assert drawing(both).node.constant  # a constant of constants, which a search does not look into
    assert tiler.options(drawing(f"add(concat(free, free; axis = 1), {both})")) == ()
    fixed = both.replace("shape(free)", "shape(x)")
    assert tiler.options(drawing(f"add(concat(x, z; axis = 1), {fixed})"))


def test_constants_may_be_thousands_of_nodes_deep() -> None:
    drawing = Drawing()
    for k in range(4000):
        drawing.tensors["k"] = drawing.arena.apply("relu" if k % 2 else "neg", (drawing.tensors["k"],), {})
    assert drawing.operators(CONV) == ["Conv"]


def test_originals_are_preferred_and_keep_their_name() -> None:
    text = "agraph (float[1, 4, 8, 8] x) => (float[1, 4, 8, 8] y) { [first] t = Relu(x) [second] y = Neg(t) }"
    found = imported(model(text))
    tiles = Tiler(found.context, found.context.arena).cover(found.graph)
    assert [tile.template.name for tile in tiles] == ["first", "second"] and [tile.index for tile in tiles] == [0, 1]


def test_a_shape_computation_is_not_kept_alive_by_what_was_rewritten() -> None:
    text = """agraph (float[n, 6] x) => (float[a, b, c] y) {
        t = Relu(x) s = Shape(t) first = Slice(s, zero, one) target = Concat<axis = 0>(first, two, three)
        y = Reshape(t, target) }"""
    numbers = {"zero": [0], "one": [1], "two": [2], "three": [3]}
    found = imported(model(text, **{name: np.array(number) for name, number in numbers.items()}))
    arena = found.context.arena
    tiler = Tiler(found.context, arena)
    assert shown(tiler.cover(found.graph)) == ["Relu", "Shape", "Slice", "Concat", "Reshape"]
    relu = found.context.values["t"]
    other = arena.build(parse_term("max(x, 0)"), {"x": relu.node.args[0]}, {}, "float")
    changed = found.graph.replace({relu: other}, arena)
    assert changed is not None
    assert shown(tiler.cover(changed)) == ["Max", "Reshape"]


def test_thousands_of_nodes() -> None:
    drawing = Drawing()
    value = drawing("x")
    for k in range(4000):
        value = drawing.arena.apply("relu" if k % 2 else "neg", (value,), {})
    assert len(drawing.tiles(value)) == 4000


def test_axes_of_size_one_come_and_go_where_sizes_are_free() -> None:
    drawing = Drawing()
    wide = "reshape(free; shape = [1, dim(free, 0), 4, dim(free, 2), 8])"
    assert drawing.operators(wide) == ["Unsqueeze"]
    assert drawing.operators(f"relu(reshape(neg({wide}); shape = shape(free)))") == [
        "Unsqueeze",
        "Neg",
        "Squeeze",
        "Relu",
    ]
