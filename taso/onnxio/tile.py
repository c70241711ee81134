"""Covering a graph with ONNX nodes: original ones where they compute what is needed, else the largest that fit."""

from __future__ import annotations

import heapq
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field

import onnx

from taso.errors import ExportError
from taso.graph.graph import CONSTANT, INPUT, OPAQUE, Arena, Graph, Node, Value, topological
from taso.hardware.latency import Kernel
from taso.onnxio.context import Context, Origin
from taso.onnxio.forms import Forms, Tile, writings
from taso.onnxio.kernel import kernel
from taso.onnxio.tensor import ARITHMETIC

__all__ = ["Tile", "Tiler"]


@dataclass
class Tiler:
    """Chooses the nodes that a graph is written with.

    use_origins: False writes every understood value anew where it can, as a check of the specification's `onnx` forms.
    """

    context: Context
    arena: Arena
    use_origins: bool = True
    _options: dict[Value, tuple[Tile, ...]] = field(default_factory=dict, repr=False)
    _of_origin: dict[Origin, Tile] = field(default_factory=dict, repr=False)
    _looks: dict[Node, Hashable] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        self.forms = Forms(self.arena.spec, self.arena, self.context.opsets)

    def cover(self, graph: Graph) -> list[Tile]:
        """The nodes that compute the outputs of a graph, each after those that it reads.

        What a node computes inside is not shared with others. Where something inside is needed outside as well and
        little would be left to do from there (the addition of a bias), the smaller nodes are taken.

        Raises:
            ExportError: no operator of the model's opset writes some value.
        """
        present = set(graph.nodes())
        banned: set[Tile] = set()
        with_extras = True
        while True:
            chosen = self._choose(graph, present, banned, with_extras)
            tiles = list(dict.fromkeys(chosen.values()))
            needed = {value for tile in tiles for value in tile.inputs} | set(graph.outputs)
            inside = {tile: [Value(node) for node in tile.interior] for tile in tiles}
            again = {tile for tile, values in inside.items() if not needed.isdisjoint(values)} - banned
            if again:
                banned |= again
                continue
            ordered = _in_order(tiles, chosen)
            if ordered is not None:
                return ordered
            if not with_extras:
                raise ExportError("the graph cannot be written: its nodes would depend on each other in a circle")
            with_extras = False

    def options(self, value: Value) -> tuple[Tile, ...]:
        """The nodes that could compute a value, the preferred first; they depend on what is below the value only.

        None of them reads a constant that cannot be written, so that no search takes one to cost nothing.
        """
        if value not in self._options:
            self._options[value] = tuple(self._find(value))
        return self._options[value]

    def look(self, node: Node) -> Hashable:
        """What tells the kernels of a node from those of others with the same operator, attributes and types: the
        original ONNX nodes that computed it, names aside."""
        if node not in self._looks:
            values = [Value(node, k) for k in range(len(node.types))]
            origins = [origin for value in values for origin in self.context.origins.get(value, [])]
            self._looks[node] = tuple(_nameless(origin.node) for origin in origins)
        return self._looks[node]

    def kernel(self, tile: Tile, sizes: Mapping[str, int]) -> Kernel | None:
        """What to measure for a node (see `onnxio.kernel`)."""
        return kernel(tile, self.context, sizes)

    def _find(self, value: Value) -> Iterable[Tile]:
        node = value.node
        if node.op == OPAQUE:
            return self._with_inputs([_opaque(node)])
        originals = [self._original(origin) for origin in self.context.origins.get(value, [])]
        if node.op not in self.arena.spec.operators or not node.args:
            return originals
        found = self._with_inputs(writings(self.forms, value))
        return originals + found if self.use_origins else found or originals

    def _with_inputs(self, tiles: Iterable[Tile]) -> list[Tile]:
        """Those of some nodes whose inputs can all be there. (An original node's can: they were.)"""
        return [tile for tile in tiles if all(map(self._writable, tile.inputs))]

    def _writable(self, value: Value) -> bool:
        """Whether a value can be there; a constant of free shape cannot be stored, and few nodes make one."""
        if not value.node.constant:
            return True
        if self.is_leaf(value):
            return value.node.op == CONSTANT or all(isinstance(size, int) for size in value.shape or ())
        if value not in self._options:
            for node in topological((value,)):  # arguments first, without recursion: constants may be deep
                for k in range(len(node.types)):
                    self.options(Value(node, k))
        return bool(self.options(value))

    def _original(self, origin: Origin) -> Tile:
        if origin not in self._of_origin:
            stop = {value.node for value in origin.inputs if value is not None}
            covered: set[Node] = set()
            todo = [out.node for out in origin.outputs if out is not None]
            while todo:
                node = todo.pop()
                if node not in covered and node not in stop and node.op not in (INPUT, OPAQUE):
                    covered.add(node)
                    todo.extend(arg.node for arg in node.args)
            self._of_origin[origin] = Tile(
                origin.node, origin.inputs, origin.outputs, frozenset(covered), origin.index, extras=origin.extras
            )
        return self._of_origin[origin]

    def _choose(self, graph: Graph, present: set[Node], banned: set[Tile], with_extras: bool) -> dict[Value, Tile]:
        chosen: dict[Value, Tile] = {}
        todo = list(graph.outputs)
        while todo:
            value = todo.pop()
            if value in chosen or self.is_leaf(value):
                continue
            tile = self._pick(value, present, banned, with_extras)
            for out in tile.outputs:
                chosen.setdefault(out, tile)
            chosen[value] = tile
            todo.extend(tile.inputs)
        return chosen

    def _pick(self, value: Value, present: set[Node], banned: set[Tile], with_extras: bool) -> Tile:
        options = self.options(value)
        usable = [tile for tile in options if tile not in banned]
        for tile in usable:
            if all(with_extras and _available(extra, present) for extra in tile.extras):
                return tile
        if not options:
            raise ExportError(f"no ONNX operator of opset {self.context.opsets.get('')} writes {_shown(value)}")
        return (usable or options)[0]

    def is_leaf(self, value: Value) -> bool:
        """Whether a value is there without a node: an input, a stored tensor, a constant computed on writing."""
        node = value.node
        if node.op == CONSTANT:
            return not (self.use_origins and value in self.context.origins)
        return node.op == INPUT or (node.op != OPAQUE and not node.args)


def _nameless(node: onnx.NodeProto) -> bytes:
    """A node without what it and its tensors are called."""
    bare = onnx.NodeProto(op_type=node.op_type, domain=node.domain)
    bare.attribute.extend(node.attribute)
    bare.input.extend("x" if name else "" for name in node.input)
    bare.output.extend("x" if name else "" for name in node.output)
    return bytes(bare.SerializeToString(deterministic=True))


def _shown(value: Value) -> str:
    attrs = ", ".join(f"{name} = {attr}" for name, attr in value.node.attrs)
    shapes = ", ".join(str(list(arg.shape or ())) for arg in value.node.args)
    return f"{value.node.op}({shapes}{'; ' if attrs else ''}{attrs})"


def _opaque(node: Node) -> Tile:
    payload = node.payload
    slots = tuple(None if slot is None else node.args[slot] for slot in payload.slots)
    outputs = tuple(Value(node, k) if name else None for k, name in enumerate(payload.node.output))
    captured = tuple((name, node.args[slot]) for name, slot in payload.captured)
    return Tile(payload.node, slots, outputs, frozenset({node}), payload.index, captured, opaque=payload)


def _available(extra: Value, present: set[Node]) -> bool:
    """Whether a number that is read beside the graph can be computed without tensors that the graph no longer has."""
    todo, seen = [extra.node], set()
    while todo:
        node = todo.pop()
        if node in seen or node in present or node.constant or node.op == INPUT:
            continue
        if any(type_.dtype in ARITHMETIC or not type_.dtype for type_ in node.types):
            return False
        seen.add(node)
        todo.extend(arg.node for arg in node.args)
    return True


def _in_order(tiles: list[Tile], chosen: dict[Value, Tile]) -> list[Tile] | None:
    """Sorted by dependence, original nodes in their old order, new ones after what they read; None for a circle."""
    number = {tile: k for k, tile in enumerate(tiles)}
    before = [{number[chosen[value]] for value in tile.inputs if value in chosen} for tile in tiles]
    after: list[list[int]] = [[] for _ in tiles]
    waiting = [len(needed) for needed in before]
    place = [-1.0 if tile.index is None else float(tile.index) for tile in tiles]
    for k, needed in enumerate(before):
        for other in needed:
            after[other].append(k)
    ready = [(place[k], -k) for k in range(len(tiles)) if not waiting[k]]
    heapq.heapify(ready)
    ordered: list[Tile] = []
    while ready:
        at, key = heapq.heappop(ready)
        ordered.append(tiles[-key])
        for k in after[-key]:
            waiting[k] -= 1
            if tiles[k].index is None:
                place[k] = max(place[k], at)
            if not waiting[k]:
                heapq.heappush(ready, (place[k], -k))
    return ordered if len(ordered) == len(tiles) else None
