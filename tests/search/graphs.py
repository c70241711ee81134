"""Small graphs, rules and prices for the tests of the search."""

from __future__ import annotations

import numpy as np

from taso.graph.graph import Arena, Graph, Node, TensorType, Value
from taso.search.cost import elements
from taso.spec import syntax as s
from taso.spec.lower import run
from taso.spec.parse import parse, parse_term
from taso.spec.spec import load_spec

CONV = "stride = s, before = b, after = a, dilation = d, group = g"

# Hand-written for the tests; the shipped ones are generated and proved.
RULES = f"""
rule merge_kernels add(conv(x, f; {CONV}), conv(x, h; {CONV})) ==> conv(x, add(f, h); {CONV})
rule scale mul(conv(x, f; {CONV}), broadcast(v; dims = [1])) ==> conv(x, mul(f, broadcast(v; dims = [0])); {CONV})
rule columns {{matmul(x, w), matmul(x, v)}} ==> {{
    slice(matmul(x, concat(w, v; axis = -1)); axis = rank(x) - 1, start = 0, stop = dim(w, -1)),
    slice(matmul(x, concat(w, v; axis = -1)); axis = rank(x) - 1, start = dim(w, -1), stop = dim(w, -1) + dim(v, -1))}}
rule shifts add(broadcast(v; dims = k), broadcast(w; dims = k)) ==> broadcast(add(v, w); dims = k)
rule regroup add(add(x, y), z) ==> add(x, add(y, z))
rule twice transpose(transpose(x; perm = p); perm = q) ==> transpose(x; perm = select(p, q))
rule slices slice(slice(x; axis = k, start = a, stop = b); axis = k, start = c, stop = d)
    ==> slice(x; axis = k, start = a + c, stop = a + d)
"""


def rules(text: str = RULES) -> list[s.Rule]:
    return [item for item in parse(text) if isinstance(item, s.Rule)]


class Bench:
    """An arena with tensors by name; `x` is an input, all others are constants with small whole numbers."""

    def __init__(self, seed: int = 0) -> None:
        self.spec = load_spec()
        self.arena = Arena(self.spec)
        self.rng = np.random.default_rng(seed)
        self.tensors: dict[str, Value] = {}

    def input(self, name: str, *shape: object) -> Value:
        self.tensors[name] = self.arena.input(name, TensorType("float", shape))  # type: ignore[arg-type]
        return self.tensors[name]

    def constant(self, name: str, *shape: int) -> Value:
        self.tensors[name] = self.arena.constant(self.rng.integers(-2, 3, shape).astype(np.float32), "float")
        return self.tensors[name]

    def value(self, text: str) -> Value:
        return self.arena.build(parse_term(text), self.tensors, {}, "float")

    def graph(self, *texts: str) -> Graph:
        inputs = tuple(v for v in self.tensors.values() if not v.node.constant)
        return Graph(tuple(map(self.value, texts)), inputs)

    def compute(self, graph: Graph, seed: int = 1) -> list[np.ndarray]:
        """What a graph computes on random whole numbers, exactly."""
        done: dict[Node, np.ndarray] = {}
        for node in graph.nodes():
            if node.op in self.spec.operators:
                args = [done[arg.node] for arg in node.args]
                done[node] = run(self.spec.operators[node.op], args, dict(node.attrs))
            elif node.constant:
                done[node] = np.asarray(node.payload, np.float64)
            else:
                shape = tuple(size if isinstance(size, int) else 2 for size in node.types[0].shape or ())
                rng = np.random.default_rng([seed, *str(node.payload).encode()])
                done[node] = rng.integers(-2, 3, shape).astype(np.float64)
        return [done[output.node] for output in graph.outputs]


def price(node: Node) -> float:
    """Invented latencies: arithmetic by its size, nothing for what only repeats."""
    size = elements(Value(node), {})
    if node.op == "conv":
        kernel = elements(node.args[1], {}) / node.types[0].shape[1]  # type: ignore[index,operator]
        return 2 + size * kernel / 2000
    if node.op == "matmul":
        return 2 + size * node.args[0].shape[-1] / 2000  # type: ignore[index,operator]
    return 0.0 if node.op in ("broadcast", "reshape") else 0.5 + size / 10000
