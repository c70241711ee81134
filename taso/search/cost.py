"""What a graph costs: the sum of the latencies of the kernels that it would be written as."""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Hashable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Any, Protocol

from taso.algebra.poly import Quantity, evaluate
from taso.graph.graph import CONSTANT, INPUT, Graph, Node, Value, size_of

BYTES = {"float": 4, "double": 8, "float16": 2, "bfloat16": 2, "int64": 8, "int32": 4, "int8": 1, "uint8": 1, "bool": 1}


class Tile(Protocol):
    """One kernel: the values that it reads and makes, and the nodes that it computes.

    interior: those of the nodes that nobody else must need, because one operator would make the result from there.
    """

    @property
    def inputs(self) -> Sequence[Value]: ...

    @property
    def outputs(self) -> Sequence[Value]: ...

    @property
    def covered(self) -> AbstractSet[Node]: ...

    @property
    def interior(self) -> Sequence[Node]: ...


class CostModel(Protocol):
    """Where kernels and their prices come from."""

    def options(self, value: Value) -> Sequence[Tile]:
        """The kernels that can make a value, the preferred first. They may depend on what it is computed from only."""

    def prices(self, tiles: Sequence[Tile]) -> list[float]:
        """The latency of each kernel, microseconds; measured together if they have to be."""

    def look(self, node: Node) -> Hashable:
        """What else than a node's operator, attributes and types its kernels depend on; equal for equal kernels."""


@dataclass(frozen=True)
class Cover:
    """The kernels that a graph, or a part of one, is written as, and the constants that they read."""

    tiles: tuple[Tile, ...]
    constants: tuple[Value, ...]
    complete: bool = True  # False if some value can be written by no kernel


@dataclass(frozen=True)
class Cost:
    """Latency in microseconds, and the size of the constants in bytes."""

    latency: float
    constant_bytes: int


def walk(outputs: Iterable[Value], outside: Container[Node] = ()) -> list[Node]:
    """The nodes that values are computed by, arguments first: without graph inputs, constants and nodes outside."""
    order: list[Node] = []
    done: set[Node] = set()
    for output in outputs:
        stack = [(output.node, False)]
        while stack:
            node, left = stack.pop()
            if left:
                order.append(node)
            elif node not in done and not node.constant and node.op != INPUT and node not in outside:
                done.add(node)
                stack.append((node, True))
                stack.extend((arg.node, False) for arg in reversed(node.args))
    return order


def cover(outputs: Sequence[Value], cost: CostModel, outside: Container[Node] = ()) -> Cover:
    """The kernels for some values, given that values of nodes outside are there already.

    As the exporter does it: each value that is needed is made by its preferred kernel, except where that would compute
    once more what has to be there anyway, and a single operator would do from there.
    """
    inside = set(walk(outputs, outside))
    banned: set[Tile] = set()
    while True:
        found = _chosen(outputs, cost, inside, outside, banned)
        needed = {value for tile in found.tiles for value in tile.inputs} | set(outputs)
        again = {tile for tile in found.tiles if any(Value(node) in needed for node in tile.interior)} - banned
        if not again:
            return found
        banned |= again


def _chosen(
    outputs: Sequence[Value],
    cost: CostModel,
    inside: AbstractSet[Node],
    outside: Container[Node],
    banned: AbstractSet[Tile],
) -> Cover:
    tiles: dict[Tile, None] = {}
    constants: dict[Value, None] = {}
    made: set[Value] = set()
    complete = True
    todo = list(outputs)
    while todo:
        value = todo.pop()
        if value in made or value.node.op == INPUT:
            continue
        if value.node.constant:
            constants[value] = None
        elif value.node in inside:
            tile = _fitting(cost.options(value), outside, banned)
            if tile is None:
                complete = False
                continue
            tiles[tile] = None
            made.update(tile.outputs)
            made.add(value)
            todo.extend(tile.inputs)
    return Cover(tuple(tiles), tuple(constants), complete)


def _fitting(options: Sequence[Tile], outside: Container[Node], banned: AbstractSet[Tile]) -> Tile | None:
    """The first kernel that computes nothing that is outside; if all do, the smallest."""
    usable = [tile for tile in options if tile not in banned] or options
    for tile in usable:
        if not any(node in outside for node in tile.covered):
            return tile
    return min(usable, key=lambda tile: len(tile.covered), default=None)


@dataclass
class Costs:
    """Costs of graphs and parts of graphs under a cost model, each kernel asked for once.

    sizes: the sizes that stand for symbolic dimensions.
    """

    model: CostModel
    sizes: Mapping[str, int] = field(default_factory=dict)

    def of(self, covers: Sequence[Cover]) -> list[Cost]:
        """The costs of several covers; their kernels are measured in one batch."""
        tiles = list(dict.fromkeys(tile for found in covers for tile in found.tiles))
        price = dict(zip(tiles, self.model.prices(tiles)))
        return [
            Cost(
                sum(price[tile] for tile in found.tiles) if found.complete else math.inf,
                sum(self.bytes(value) for value in found.constants),
            )
            for found in covers
        ]

    def cover(self, outputs: Sequence[Value], outside: Container[Node] = ()) -> Cover:
        return cover(outputs, self.model, outside)

    def graph(self, graph: Graph) -> Cost:
        """The cost of a whole graph."""
        return self.of([self.cover(graph.outputs)])[0]

    def bytes(self, value: Value) -> int:
        """How large a constant is in a file; sizes that are not known count as 1."""
        return elements(value, self.sizes) * BYTES.get(value.type.dtype, 4)


def elements(value: Value, sizes: Mapping[str, int]) -> int:
    """How many elements a value has with these sizes."""
    total: Quantity = size_of(value.shape or ())
    try:
        return evaluate(total, sizes)
    except KeyError:
        return 1


@dataclass(frozen=True)
class OneNode:
    """A kernel that is one node of the graph."""

    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    covered: frozenset[Node]
    interior: tuple[Node, ...] = ()


@dataclass
class TableCost:
    """A cost model without hardware: every node is one kernel, priced by a function. For tests and dry runs."""

    price: Callable[[Node], float]
    asked: int = 0

    def options(self, value: Value) -> Sequence[Tile]:
        node = value.node
        assert node.op != CONSTANT
        return [OneNode(node.args, tuple(Value(node, k) for k in range(len(node.types))), frozenset({node}))]

    def prices(self, tiles: Sequence[Tile]) -> list[float]:
        self.asked += len(tiles)
        return [sum(map(self.price, tile.covered)) for tile in tiles]

    def look(self, node: Node) -> Hashable:
        return self.price(node)


@dataclass
class KernelCost:
    """Kernels as the exporter would write them, latencies as the target has them.

    tiler:   lists the kernels that can make a value (`taso.onnxio.tile.Tiler`).
    kernel:  what is to be measured for one of them; None where that costs nothing or cannot be measured.
    latency: measures or looks up latencies (`taso.hardware.latency.LatencyModel`).
    """

    tiler: Any
    kernel: Callable[[Any], Any]
    latency: Any
    known: dict[Tile, float] = field(default_factory=dict)
    twins: dict[Tile, Tile] = field(default_factory=dict)  # an original node: the node that would be written for it
    kernels: set[str] = field(default_factory=set)  # the keys of all kernels that were asked for

    def options(self, value: Value) -> Sequence[Tile]:
        found: Sequence[Tile] = self.tiler.options(value)
        for tile in found:
            if tile not in self.twins:
                self.twins[tile] = next((other for other in found if _same_kernel(tile, other)), tile)
        return found

    def look(self, node: Node) -> Hashable:
        found: Hashable = self.tiler.look(node)
        return found

    def prices(self, tiles: Sequence[Tile]) -> list[float]:
        """Latencies, microseconds.

        An original node and the one that is written for the same operators are one kernel (they may differ in the order
        of arguments or in a default that is spelled out): two measurements of it would make rewriting nothing look
        like a gain or a loss.
        """
        tiles = [self.twins.get(tile, tile) for tile in tiles]
        built = [(tile, self.kernel(tile)) for tile in tiles if tile not in self.known]
        self.known.update((tile, 0.0) for tile, kernel in built if kernel is None)
        wanted = [(tile, kernel) for tile, kernel in built if kernel is not None]
        if wanted:
            self.kernels.update(kernel.key for _, kernel in wanted)
            latencies = self.latency.latency([kernel for _, kernel in wanted])
            for (tile, _), latency in zip(wanted, latencies):
                # What the runtime cannot run alone and the specification does not know stays whatever is chosen.
                kept = latency == math.inf and getattr(tile, "opaque", None) is not None
                self.known[tile] = 0.0 if kept else latency
        return [self.known[tile] for tile in tiles]


def _same_kernel(original: Any, written: Any) -> bool:
    """Whether a tile of the exporter does what an original node does, with the same ONNX operator."""
    ours, theirs = getattr(original, "template", None), getattr(written, "template", None)
    if ours is None or theirs is None or original.index is None or written.index is not None:
        return False
    return (ours.domain, ours.op_type) == (theirs.domain, theirs.op_type) and _computing(original) == _computing(
        written
    )


def _computing(tile: Any) -> set[Node]:
    return {node for node in tile.covered if not node.constant}
