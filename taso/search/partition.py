"""Parts of a graph that are searched on their own, and what makes two parts alike."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Container, Hashable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from taso.graph.graph import CONSTANT, INPUT, OPAQUE, Arena, Node, Value, with_args
from taso.search.cost import walk
from taso.search.uniform import telling, uniform
from taso.spec.spec import Spec
from taso.spec.traits import commutative

Outputs = tuple[Value, ...]

MANY = 24  # a value that more nodes read does not make them neighbours


@dataclass(frozen=True)
class Outside(Container[Node]):
    """The nodes of a graph that are not in one part of it; `beyond` is what was outside of the graph itself."""

    everything: AbstractSet[Node]
    part: AbstractSet[Node]
    beyond: Container[Node] = ()

    def __contains__(self, node: object) -> bool:
        return (node in self.everything and node not in self.part) or node in self.beyond


@dataclass(frozen=True)
class Region:
    """A part of a graph: its nodes (arguments first), and those of their values that others need."""

    nodes: tuple[Node, ...]
    outputs: Outputs
    outside: Outside


@dataclass(frozen=True)
class Surroundings:
    """A graph, or a part of one, with what is looked up in it all the time."""

    outputs: Outputs
    nodes: tuple[Node, ...]  # without inputs and constants
    everything: AbstractSet[Node]
    users: Mapping[Value, Sequence[Node]]
    beyond: Container[Node]

    @staticmethod
    def of(outputs: Outputs, beyond: Container[Node] = ()) -> Surroundings:
        nodes = tuple(walk(outputs, beyond))
        users: dict[Value, list[Node]] = {}
        for node in nodes:
            for arg in dict.fromkeys(node.args):
                users.setdefault(arg, []).append(node)
        return Surroundings(outputs, nodes, frozenset(nodes), users, beyond)

    def region(self, chosen: AbstractSet[Node]) -> Region:
        """The part that has exactly these nodes."""
        nodes = tuple(sorted(chosen, key=lambda node: node.uid))
        wanted = set(self.outputs)
        outputs = tuple(
            value
            for node in nodes
            for value in (Value(node, k) for k in range(len(node.types)))
            if value in wanted or any(user not in chosen for user in self.users.get(value, ()))
        )
        return Region(nodes, outputs, Outside(self.everything, frozenset(chosen), self.beyond))

    def users_of(self, node: Node) -> Iterator[Node]:
        """The nodes that read a node's values."""
        for k in range(len(node.types)):
            yield from self.users.get(Value(node, k), ())

    def above(self, nodes: Iterable[Node], levels: int) -> set[Node]:
        """Some nodes and what reads them, over so many levels."""
        found = set(nodes)
        level = list(found)
        for _ in range(levels):
            level = [user for node in level for user in self.users_of(node) if user not in found]
            found.update(level)
        return found

    def next_to(self, nodes: Iterable[Node]) -> set[Node]:
        """Some nodes, what reads them and what they read."""
        found = self.above(nodes, 1)
        found.update(arg.node for node in tuple(found) for arg in node.args if arg.node in self.everything)
        return found

    def place(self, nodes: Iterable[Node]) -> frozenset[Node]:
        """What has to be looked at to cost a change of some nodes: two levels up, where it may fuse, and one down."""
        found = {node for node in nodes if node in self.everything}
        below = {arg.node for node in found for arg in node.args if arg.node in self.everything}
        return frozenset(self.above(found, 2) | below)

    def circular(self, changes: Mapping[Value, Value]) -> bool:
        """Whether a change would make a value depend on itself: what it is made of depends on what it replaces.

        Arguments are older than what reads them, so nothing older than the replaced nodes has to be looked at.
        """
        roots = {old.node for old in changes}
        oldest = min(root.uid for root in roots)
        todo = [new.node for new in changes.values()]
        seen: set[Node] = set()
        while todo:
            node = todo.pop()
            if node in roots:
                return True
            if node not in seen and node.uid > oldest:
                seen.add(node)
                todo.extend(arg.node for arg in node.args)
        return False

    def around(self, seed: Node, limit: int) -> set[Node]:
        """Up to `limit` nodes near a node, the nearest first."""
        found, queue = {seed}, deque([seed])
        while queue and len(found) < limit:
            node = queue.popleft()
            near = [arg.node for arg in node.args]
            near += self.users_of(node)
            for arg in node.args:  # what reads the same: only where that is not half of the graph
                users = self.users.get(arg, ())
                near += users if len(users) <= MANY else ()
            for other in near:
                if len(found) < limit and other in self.everything and other not in found:
                    found.add(other)
                    queue.append(other)
        return found


def rebuilt(
    outputs: Sequence[Value],
    changes: Mapping[Value, Value],
    outside: Container[Node],
    arena: Arena,
    memo: dict[tuple[Node, tuple[Value, ...]], Node] | None = None,
) -> tuple[Outputs, dict[Node, Node]] | None:
    """The values after some others were replaced in what they are computed from, and what each visited node became.

    None if a value would depend on itself. Nothing outside is rebuilt. `memo` remembers nodes with other arguments.
    """
    memo = {} if memo is None else memo

    def target(value: Value) -> Value:
        steps = 0
        while value in changes:
            value, steps = changes[value], steps + 1
            if steps > len(changes):
                raise RecursionError
        return value

    done: dict[Node, Node] = {}
    active: set[Node] = set()
    try:
        for output in outputs:
            stack = [(target(output).node, False)]
            while stack:
                node, left = stack.pop()
                if left:
                    active.discard(node)
                    done[node] = node
                    args = tuple(_moved(target(arg), done) for arg in node.args)
                    if args != node.args:
                        if (node, args) not in memo:
                            memo[node, args] = with_args(node, args, arena)
                        done[node] = memo[node, args]
                elif node not in done and not node.constant and node.op != INPUT and node not in outside:
                    if node in active:
                        return None
                    active.add(node)
                    stack.append((node, True))
                    for arg in reversed(node.args):
                        child = target(arg).node
                        if child in active:
                            return None
                        stack.append((child, False))
        return tuple(_moved(target(output), done) for output in outputs), done
    except RecursionError:
        return None


def _moved(value: Value, done: Mapping[Node, Node]) -> Value:
    return Value(done.get(value.node, value.node), value.index)


class Likeness:
    """Names for values so that values which differ only by the order of symmetric operators have one name.

    look: what else than its operator, attributes and types a node's kernels depend on (`CostModel.look`).
    """

    def __init__(self, spec: Spec, look: Callable[[Node], Hashable]) -> None:
        self._look = look
        self._symmetric = {op.name for op in spec.operators.values() if commutative(op)}
        self._spec = spec
        self._names: dict[object, int] = {}
        self._numbers: dict[object, int] = {}
        self._kinds: dict[Node, int] = {}
        self._leaves: dict[Node, int] = {}
        self._known: dict[Node, int] = {}

    def key(self, outputs: Iterable[Value]) -> tuple[tuple[int, int], ...]:
        """A name for some values together."""
        return tuple((self.name(output.node), output.index) for output in outputs)

    def name(self, node: Node) -> int:
        stack = [node]
        while stack:
            top = stack[-1]
            missing = [arg.node for arg in top.args if arg.node not in self._known]
            if top in self._known or not missing:
                stack.pop()
                if top not in self._known:
                    self._known[top] = self._named(top)
            else:
                stack.extend(missing)
        return self._known[node]

    def _named(self, node: Node) -> int:
        if node.op in (INPUT, CONSTANT, OPAQUE):
            return self._names.setdefault(node, len(self._names))
        args = [(self._known[arg.node], arg.index) for arg in node.args]
        if node.op in self._symmetric:
            args.sort()
        return self._names.setdefault((node.op, tuple(args), node.attrs, node.types), len(self._names))

    def signature(self, region: Region) -> object:
        """Equal for parts that differ only in which tensors they read and which numbers large constants hold.

        Such parts cost the same, and what is gained in one of them is gained in the other.
        """
        numbers: dict[Node, int] = {}
        parts: list[int] = []
        for node in region.nodes:
            parts.append(self._kind(node))
            for arg in node.args:
                number = numbers.get(arg.node)
                if number is None:  # not of this part
                    number = numbers[arg.node] = len(numbers)
                    parts.append(self._leaf(arg.node))
                parts += (number, arg.index)
            numbers[node] = len(numbers)
        for output in region.outputs:
            parts += (numbers.setdefault(output.node, len(numbers)), output.index)
        return tuple(parts)

    def _kind(self, node: Node) -> int:
        """A number for a node without its arguments."""
        kind = self._kinds.get(node)
        if kind is None:
            payload = node.payload.key if node.op == OPAQUE else None
            key = ("node", node.op, len(node.args), node.types, node.attrs, payload, self._look(node))
            kind = self._kinds[node] = self._numbered(key)
        return kind

    def _leaf(self, node: Node) -> int:
        """A number for a node outside of a part: for a constant what it is made of, else only its types."""
        if node in self._leaves:
            return self._leaves[node]
        for part in _constants(node) if node.constant else ():
            if part not in self._leaves:
                made = (uniform(Value(part), self._spec), telling(part)) if part.op == CONSTANT else self._kind(part)
                args = tuple((self._leaves[arg.node], arg.index) for arg in part.args)
                self._leaves[part] = self._numbered(("constant", part.types, made, args))
        if not node.constant:
            self._leaves[node] = self._numbered(("outside", node.types))
        return self._leaves[node]

    def _numbered(self, key: object) -> int:
        try:
            return self._numbers.setdefault(key, len(self._numbers))
        except TypeError:  # an attribute that cannot be compared: like nothing else
            return self._numbers.setdefault(object(), len(self._numbers))


def _constants(root: Node) -> list[Node]:
    """The constant nodes that a constant is computed from, arguments first, itself last."""
    order: dict[Node, None] = {}
    stack = [root]
    while stack:
        node = stack[-1]
        missing = [arg.node for arg in node.args if arg.node not in order]
        if missing and node not in order:
            stack.extend(missing)
        else:
            stack.pop()
            order[node] = None
    return list(order)
