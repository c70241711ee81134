"""The original's rules written in our language.

The original takes the group count of a convolution from the shapes; here it is a symbol where the left side is free to
choose it, and follows from the sizes elsewhere. A split cuts where the concatenation joined. What the right side needs
and the left side does not say becomes a `where`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from bench.original.notation import INPUT, PART, Node, OriginalRule
from bench.original.sizes import Equations, Misfit, Size
from taso.spec import syntax as s
from taso.spec.parse import parse_rule

Pool = Literal["average", "sum"]
Groups = Literal["any", "one"]
Phase = Literal["source", "target"]

SAME = ("before = [{0}, {1}], after = [{0}, {1}]").format
ELEMENTWISE = {"ewadd": "add", "ewmul": "mul"}
_IDENTITY, _POOL_KERNEL, _MATRIX, _ONES = (
    "const_identity_conv",
    "const_pool_kernel",
    "const_identity_matrix",
    "const_ones",
)


@dataclass(frozen=True)
class Split:
    """Where an axis was joined: the size of the first part, and how each part was joined in turn."""

    at: Size
    first: Split | None
    second: Split | None


Dims = tuple[Size, ...]
Joined = tuple[Split | None, ...]


@dataclass
class Shapes:
    """The sizes of all terms of a rule for given ranks of its tensors."""

    ranks: dict[str, int]
    equations: Equations = field(default_factory=Equations)
    conditions: list[str] = field(default_factory=list)
    known: dict[tuple[Phase, Node], tuple[Dims, Joined]] = field(default_factory=dict)

    def of(self, node: Node, phase: Phase) -> tuple[Dims, Joined]:
        """Sizes and joints of a term. Raises Misfit."""
        key = (phase, node)
        if key not in self.known:
            self.known[key] = self._of(node, phase)
        return self.known[key]

    def size(self, node: Node, phase: Phase, axis: int) -> Size:
        return self.equations.norm(self.of(node, phase)[0][axis])

    def require(self, left: Size, right: Size, phase: Phase, implied: bool = True) -> None:
        """An equation that an operator needs; a condition of the rule unless the left side's operators imply it."""
        before = left, right
        if self.equations.equate(left, right) and not (implied and phase == "source"):
            self.conditions.append(f"{before[0].written()} == {before[1].written()}")

    def _of(self, node: Node, phase: Phase) -> tuple[Dims, Joined]:
        if node.op == INPUT:
            name = node.attr("name")
            dims = tuple(Size.unknown(f"{name}.{k}") for k in range(self.ranks[name]))
            return dims, (None,) * len(dims)
        if node.op == PART:
            return self._part(node, phase)
        if node.op.startswith("const"):
            dims = self._constant(node)
            return dims, (None,) * len(dims)
        shapes = [self.of(arg, phase) for arg in node.args]
        dims, joined = shapes[0]
        if node.op in ("relu", "scalar_mul", "split"):
            return shapes[0]
        if node.op in ELEMENTWISE:
            other, also = self._same_rank(shapes)
            for a, b in zip(dims, other):
                self.require(a, b, phase)
            return dims, tuple(x or y for x, y in zip(joined, also))
        if node.op == "concat":
            other, also = self._same_rank(shapes)
            for k, (a, b) in enumerate(zip(dims, other)):
                if k != node.axis:
                    self.require(a, b, phase)
            joints = [x or y for x, y in zip(joined, also)]
            joints[node.axis] = Split(dims[node.axis], joined[node.axis], also[node.axis])
            whole = list(dims)
            whole[node.axis] = dims[node.axis].plus(other[node.axis])
            return tuple(whole), tuple(joints)
        if node.op == "matmul":
            (a, b), (c, d) = dims, shapes[1][0]
            self.require(b, c, phase)
            return (a, d), (joined[0], shapes[1][1][1])
        if node.op == "transpose":
            return dims[::-1], joined[::-1]
        if node.op == "conv2d":
            kernel, also = shapes[1]
            for k in (0, 1):
                self.require(kernel[2 + k], Size(node.kernel[k]), phase, implied=False)
            if node.args[1].op in (_IDENTITY, _POOL_KERNEL):
                self.require(kernel[0], dims[1], phase)
            return (dims[0], kernel[0], *dims[2:]), (joined[0], also[0], None, None)
        if node.op in ("pool2d_avg", "pool2d_max"):
            return dims, (*joined[:2], None, None)
        if node.op == "enlarge":
            return (*dims[:2], *map(Size, node.kernel)), (*joined[:2], None, None)
        raise Misfit(f"no operator `{node.op}`")

    def _same_rank(self, shapes: list[tuple[Dims, Joined]]) -> tuple[Dims, Joined]:
        if len(shapes[0][0]) != len(shapes[1][0]):
            raise Misfit("ranks differ")
        return shapes[1]

    def _constant(self, node: Node) -> Dims:
        new = self.equations.new
        if node.op == _MATRIX:
            size = new()
            return size, size
        if node.op == _ONES:
            return tuple(new() for _ in range(self.ranks[""]))
        kernel = tuple(map(Size, node.kernel))
        return (new(), Size(1) if node.op == _POOL_KERNEL else new(), *kernel)

    def _part(self, node: Node, phase: Phase) -> tuple[Dims, Joined]:
        split = node.args[0]
        dims, joined = self.of(split, phase)
        joint = joined[split.axis]
        if joint is None:
            raise Misfit("a split of something that no concat made")
        sizes, joints = list(dims), list(joined)
        first = node.attr("k") == "0"
        sizes[split.axis] = joint.at if first else dims[split.axis].plus(joint.at, -1)
        joints[split.axis] = joint.first if first else joint.second
        return tuple(sizes), tuple(joints)


@dataclass
class Writer:
    """Terms of one rule as text, once all sizes are known."""

    shapes: Shapes
    pool: Pool
    groups: Groups
    names: dict[tuple[Size, Size], str] = field(default_factory=dict)  # group counts by channels and channels per group
    free: dict[Size, str] = field(default_factory=dict)  # channels per group of identity kernels on the left
    conditions: list[str] = field(default_factory=list)

    def term(self, node: Node, phase: Phase) -> str:
        if node.op == INPUT:
            return node.attr("name")
        if node.op == PART:
            return self._part(node, phase)
        if node.op.startswith("const"):
            return self._constant(node, phase)
        args = [self.term(arg, phase) for arg in node.args]
        if node.op in ELEMENTWISE:
            return f"{ELEMENTWISE[node.op]}({args[0]}, {args[1]})"
        if node.op == "scalar_mul":
            return f"mul({args[0]}, broadcast({args[1]}; dims = []))"
        if node.op in ("relu", "matmul"):
            return f"{node.op}({', '.join(args)})"
        if node.op == "concat":
            return f"concat({args[0]}, {args[1]}; axis = {node.axis})"
        if node.op == "transpose":
            return f"transpose({args[0]}; perm = [1, 0])"
        if node.op == "enlarge":
            around = [self._around(node, phase, k) for k in (0, 1)]
            if around == [0, 0]:
                return args[0]
            zeros = f"[0, 0, {around[0]}, {around[1]}]"
            return f"pad({args[0]}; before = {zeros}, after = {zeros})"
        edges = SAME(*((k - 1) // 2 for k in node.kernel))
        kernel = f"kernel = [{node.kernel[0]}, {node.kernel[1]}]"
        if node.op == "pool2d_max":
            return f"max_pool({args[0]}; {kernel}, {edges})"
        if node.op == "pool2d_avg":
            average = f"avg_pool_padded({args[0]}; {kernel}, {edges})"
            return average if self.pool == "average" else f"mul({average}, {node.kernel[0] * node.kernel[1]})"
        assert node.op == "conv2d", node.op
        conv = f"conv({args[0]}, {args[1]}; {edges}{self._group(node, phase)})"
        return f"relu({conv})" if dict(node.attrs).get("activation") == "relu" else conv

    def _around(self, node: Node, phase: Phase, k: int) -> int:
        size = self.shapes.size(node.args[0], phase, 2 + k)
        if size.factors:
            raise Misfit("nothing says how large the kernel is that is enlarged")
        return (node.kernel[k] - size.constant) // 2

    def _part(self, node: Node, phase: Phase) -> str:
        split = node.args[0]
        joint = self.shapes.of(split, phase)[1][split.axis]
        assert joint is not None
        at = self.shapes.equations.norm(joint.at).written()
        end = self.shapes.size(split, phase, split.axis).written()
        start, stop = ("0", at) if node.attr("k") == "0" else (at, end)
        return f"slice({self.term(split.args[0], phase)}; axis = {split.axis}, start = {start}, stop = {stop})"

    def _constant(self, node: Node, phase: Phase) -> str:
        if node.op == _ONES:
            return "ones()"  # of the shape that the place asks for
        dims = [self.shapes.equations.norm(size) for size in self.shapes.of(node, phase)[0]]
        if node.op == _MATRIX:
            return f"identity_matrix(; size = {dims[0].written()})"
        kernel = f"[{node.kernel[0]}, {node.kernel[1]}]"
        if node.op == _POOL_KERNEL:
            ones = f"ones(; shape = [{dims[0].written()}, 1, {node.kernel[0]}, {node.kernel[1]}])"
            return ones if self.pool == "sum" else f"mul({ones}, `1 / {node.kernel[0] * node.kernel[1]}`)"
        per_group = dims[1]
        if any(name.startswith("?") for name, _ in per_group.factors):  # nothing says it
            if phase == "source" and self.groups == "any":
                name = self.free.setdefault(per_group, f"p{len(self.free) + 1}")
                return f"identity_kernel(; channels = {dims[0].written()}, per_group = {name}, kernel = {kernel})"
            self.shapes.equations.equate(per_group, dims[0])
            per_group = dims[0]
        sizes = f"channels = {dims[0].written()}, per_group = {per_group.written()}"
        return f"identity_kernel(; {sizes}, kernel = {kernel})"

    def _group(self, node: Node, phase: Phase) -> str:
        channels, each = (self.shapes.size(arg, phase, 1) for arg in node.args)
        if channels == each or self.groups == "one":
            return ""
        if phase == "source":
            name = self.names.setdefault((channels, each), f"g{len(self.names) + 1}")
        elif (channels, each) in self.names:
            name = self.names[channels, each]
        elif each == Size(1):
            name = channels.written()
        else:
            whole, part = (f"({size.written()})" for size in (channels, each))
            self.conditions.append(f"{whole} % {part} == 0")
            name = f"{whole} / {part}"
        return f", group = {name}"


def converted(rule: OriginalRule, name: str, *, pool: Pool = "average", groups: Groups = "any") -> s.Rule:
    """The rule in our language, with the ranks at which the original has it: 2 and 4, 0 for scalars.

    Args:
        pool: how the average over a window is read: as what it says, or as the plain sum that the original computes.
        groups: whether convolutions may have groups.

    Raises:
        Misfit: the rule has no meaning.
    """
    texts: dict[str, list[tuple[int, ...]]] = {}
    for rank in (2, 4):
        try:
            text, ranks = _text(rule, rank, pool, groups)
        except Misfit:
            if rank == 4 and not texts:
                raise
            continue
        choices = texts.setdefault(text, [])
        choice = tuple(ranks[tensor] for tensor in _tensors(rule.source))
        if choice not in choices:
            choices.append(choice)
    text, choices = next(iter(texts.items()))
    named = ", ".join(_tensors(rule.source))
    listed = ", ".join(f"({', '.join(map(str, choice))})" for choice in choices)
    return parse_rule(f"rule {name} {text} ranks ({named}) in [{listed}]")


def _text(rule: OriginalRule, rank: int, pool: Pool, groups: Groups) -> tuple[str, dict[str, int]]:
    ranks = _ranks(rule, rank)
    shapes = Shapes(ranks)
    for node in rule.source:
        shapes.of(node, "source")
    for node in rule.target:
        shapes.of(node, "target")
    for left, right in zip(rule.source, rule.target):
        before, after = shapes.of(left, "source")[0], shapes.of(right, "target")[0]
        if len(before) != len(after):
            raise Misfit("the sides have different ranks")
        for a, b in zip(before, after):
            shapes.require(a, b, "target")
    if groups == "one":
        _without_groups(rule, shapes)
    writer = Writer(shapes, pool, groups)
    sides = (
        [writer.term(node, "source") for node in rule.source],
        [writer.term(node, "target") for node in rule.target],
    )
    source, target = (f"{{{', '.join(terms)}}}" if len(terms) > 1 else terms[0] for terms in sides)
    conditions = list(dict.fromkeys([*shapes.conditions, *writer.conditions]))
    where = f" where {', '.join(conditions)}" if conditions else ""
    return f"{source} ==> {target}{where}", ranks


def _without_groups(rule: OriginalRule, shapes: Shapes) -> None:
    """Every convolution reads all channels of its image."""

    def walk(node: Node, phase: Phase) -> None:
        for arg in node.args:
            walk(arg, phase)
        if node.op == "conv2d":
            channels, each = (shapes.of(arg, phase)[0][1] for arg in node.args)
            shapes.require(channels, each, phase)

    for node in rule.source:
        walk(node, "source")
    for node in rule.target:
        walk(node, "target")


def _tensors(nodes: tuple[Node, ...]) -> list[str]:
    found: dict[str, None] = {}

    def walk(node: Node) -> None:
        if node.op == INPUT:
            found[node.attr("name")] = None
        for arg in node.args:
            walk(arg)

    for node in nodes:
        walk(node)
    return list(found)


def _ranks(rule: OriginalRule, rank: int) -> dict[str, int]:
    """The ranks of the tensors; `rank` for those that may have any, and under "" for `const_ones`. Raises Misfit."""
    same: dict[object, object] = {}
    fixed: dict[object, int] = {}

    def root(key: object) -> object:
        while key in same:
            key = same[key]
        return key

    def join(a: object, b: object) -> None:
        a, b = root(a), root(b)
        if a != b:
            same[a] = b
            if a in fixed:
                fix(b, fixed.pop(a))

    def fix(key: object, value: int) -> None:
        if fixed.setdefault(root(key), value) != value:
            raise Misfit("ranks differ")

    def walk(node: Node) -> object:
        key: object = node.attr("name") if node.op == INPUT else "" if node.op == _ONES else node
        args = [walk(arg) for arg in node.args]
        if node.op in ("matmul", "transpose", _MATRIX):
            for each in (key, *args):
                fix(each, 2)
        elif node.op in ("conv2d", "pool2d_avg", "pool2d_max", "enlarge", _IDENTITY, _POOL_KERNEL):
            for each in (key, *args):
                fix(each, 4)
        elif node.op == "scalar_mul":
            fix(args[1], 0)
            join(key, args[0])
        else:
            for arg in args:
                join(key, arg)
        return key

    for left, right in zip(rule.source, rule.target):
        join(walk(left), walk(right))
    return {name: fixed.get(root(name), rank) for name in [*_tensors(rule.source), *_tensors(rule.target), ""]}
