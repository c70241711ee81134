"""One instance of a rule: ranks and structural attributes fixed, sizes and numeric attributes symbols, sides typed.

What is to be fixed is found on the way: whoever meets a tensor of unknown rank or an unbound axis raises `Open` with
the possible choices, and the caller tries each. Choices that do not fit fail early, so few combinations are tried in
full.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field, fields, is_dataclass
from fractions import Fraction

from taso.algebra.poly import Quantity, var
from taso.errors import ShapeError, SpecError
from taso.prove.decide import Limits
from taso.prove.facts import Fact, ge
from taso.prove.index import cases_of
from taso.prove.sizes import Sizes
from taso.prove.terms import Unsupported
from taso.spec import syntax as s
from taso.spec.elaborate import Elaborator, Typed, _Env
from taso.spec.evaluate import Scope, UnboundName, evaluate
from taso.spec.shapes import Declared, solve
from taso.spec.spec import Spec
from taso.spec.value import Shape, Value

Choices = dict[str, Value]  # "rank x" -> rank; "k" -> value of a structural attribute or length of a shape


class Open(Exception):
    """Something has to be fixed before an instance can be typed."""

    def __init__(self, name: str, options: list[Value]) -> None:
        super().__init__(name)
        self.name, self.options = name, options


@dataclass
class Instance:
    """A typed rule. `source` and `target` have equal shapes output by output; the hypotheses are in `sizes`."""

    choices: Choices
    sizes: Sizes
    shapes: dict[str, Shape]
    attrs: dict[str, Value]
    source: tuple[Typed, ...]
    target: tuple[Typed, ...]

    @property
    def ranks(self) -> tuple[int, ...]:
        return tuple(len(shape) for shape in self.shapes.values())

    def hypotheses(self) -> list[Fact]:
        return self.sizes.known()


class RuleError(SpecError):
    """The rule itself is wrong, for all ranks."""


class TargetError(ShapeError):
    """The right side does not fit its operators although the left side does."""


def tensors_of(terms: tuple[s.Term, ...]) -> tuple[str, ...]:
    """The tensors that terms name, in order of appearance."""
    found: dict[str, None] = {}

    def walk(term: s.Term) -> None:
        if isinstance(term, s.Var):
            found[term.name] = None
        elif isinstance(term, s.Apply):
            for arg in term.args:
                walk(arg)

    for term in terms:
        walk(term)
    return tuple(found)


def tensors_in(exprs: list[s.Expr]) -> list[str]:
    """The names in `dim(x, ...)`, `rank(x)` and `shape(x)` inside expressions."""
    found: dict[str, None] = {}
    todo: list[object] = list(exprs)
    while todo:
        expr = todo.pop(0)
        if isinstance(expr, s.Call) and expr.function in ("dim", "rank", "shape") and isinstance(expr.args[0], s.Name):
            found[expr.args[0].id] = None
        elif isinstance(expr, tuple):
            todo += expr
        elif is_dataclass(expr):
            todo += [getattr(expr, field.name) for field in fields(expr)]
    return list(found)


@dataclass
class _Symbols:
    """The symbols of a rule: a size per axis of each tensor, and attributes by name."""

    sizes: Sizes
    choices: Choices
    max_rank: int
    shapes: dict[str, Shape] = field(default_factory=dict)
    attrs: dict[str, Value] = field(default_factory=dict)

    def shape(self, tensor: str) -> Shape:
        """The shape of an input tensor. Raises Open for an unknown rank."""
        key = f"rank {tensor}"
        if key not in self.choices:
            raise Open(key, list(range(self.max_rank + 1)))
        if tensor not in self.shapes:
            extents = []
            for k in range(self.choices[key]):
                name = f"{tensor}.{k}"
                self.sizes.symbols[name] = s.Call("dim", (s.Name(tensor), _num(k)))
                extents.append(var(name))
            self.shapes[tensor] = tuple(extents)
        return tuple(self.sizes.norm(extent) for extent in self.shapes[tensor])

    def number(self, name: str, at: int | None = None, prefix: str = "~") -> Quantity:
        """The symbol of a numeric attribute, or of one of its entries."""
        symbol = f"{prefix}{name}" if at is None else f"{prefix}{name}.{at}"
        self.sizes.symbols[symbol] = s.Name(name) if at is None else s.Call("at", (s.Name(name), _num(at)))
        return var(symbol)


class RuleElaborator(Elaborator):
    """Types the left side of a rule, binding the names in its attributes as it meets them."""

    def __init__(self, spec: Spec, symbols: _Symbols, env: _Env, tensors: tuple[str, ...], binding: bool) -> None:
        super().__init__(spec, symbols.sizes)
        self.symbols, self.env, self.tensors, self.binding = symbols, env, tensors, binding
        self.guesses: dict[s.Term, int] = {}
        self.guessing = False  # invent the shapes that neither a term nor its place says

    def _type(self, term: s.Term, env: _Env, result: Shape | None) -> Typed | None:
        if env is self.env and self.binding:
            if isinstance(term, s.Var):
                self._bind_tensor(term.name, env)
            elif isinstance(term, s.Literal) and isinstance(term.value, s.Name):
                self._bind_real(term.value.id, env)
        return super()._type(term, env, result)

    def _apply(self, declared: Declared, term: s.Apply, env: _Env, result: Shape | None) -> Typed | None:
        if env is self.env and self.binding:
            if result is None and self.guessing:
                result = self._guess(declared, term)
            if not self._bind(declared, term, env, result):
                return None
        return super()._apply(declared, term, env, result)

    def _guess(self, declared: Declared, term: s.Apply) -> Shape | None:
        """A shape of new symbols for an operator whose shape attribute is left out, of each rank in turn."""
        written = dict(term.attrs)
        left_out = [a for a in declared.attrs if a.type == "shape" and a.default is None and a.name not in written]
        if not left_out or not isinstance(declared, s.Operator):
            return None
        at = self.guesses.setdefault(term, len(self.guesses))
        rank = self._choice(f"length of result {at}", list(range(self.symbols.max_rank + 1)))
        return tuple(self.symbols.sizes.norm(self.symbols.number(f"result {at}", k, prefix="")) for k in range(rank))

    def _bind_tensor(self, name: str, env: _Env) -> None:
        if name not in env.tensors:
            env.tensors[name] = Typed("var", name, shape=self.symbols.shape(name))

    def _bind_real(self, name: str, env: _Env) -> None:
        if name not in env.values and name not in ("true", "false"):
            self.symbols.sizes.reals.add(f"~{name}")
            env.values[name] = self.symbols.number(name)

    def _bind(self, declared: Declared, term: s.Apply, env: _Env, result: Shape | None) -> bool:
        """Bind the bare names in the attributes of one operator: numbers first, then its tensors', then lists.

        False if a list's length will only be known with the shape that the place asks for.
        """
        written = dict(term.attrs)
        for name in tensors_in(list(written.values())):
            if name in self.tensors:
                self._bind_tensor(name, env)
        lists: list[tuple[s.AttrDecl, str]] = []
        for attr in declared.attrs:
            expr = written.get(attr.name)
            if isinstance(expr, s.ListOf):
                for item in expr.items:
                    if isinstance(item, s.Name) and item.id not in env.values:
                        env.values[item.id] = self.symbols.number(item.id, prefix="" if attr.type == "shape" else "~")
            if not isinstance(expr, s.Name) or expr.id in env.values or expr.id in ("true", "false"):
                continue
            if attr.type == "int":
                env.values[expr.id] = self.symbols.number(expr.id)
            elif attr.type == "real":
                self._bind_real(expr.id, env)
            elif attr.type == "bool":
                env.values[expr.id] = self._choice(expr.id, [False, True])
            elif attr.type == "shape":
                length = self._choice(f"length {expr.id}", list(range(self.symbols.max_rank + 1)))
                env.values[expr.id] = tuple(self.symbols.number(expr.id, k, prefix="") for k in range(length))
            else:
                lists.append((attr, expr.id))
        args = [self.type(arg, env, None) for arg in term.args]
        for attr, name in lists:
            if name not in env.values:
                length = self._length(attr, declared, term, args, env, result)
                if length is None:
                    return False
                env.values[name] = self._listed(name, attr, length)
        return True

    def _listed(self, name: str, attr: s.AttrDecl, length: int) -> Value:
        axes = range(length)
        if attr.type == "ints":
            return tuple(self.symbols.number(name, k) for k in axes)
        if attr.type == "axis":
            return self._choice(name, list(axes))
        if attr.type == "perm":
            return self._choice(name, list(itertools.permutations(axes)))
        return self._choice(name, [c for n in range(length + 1) for c in itertools.combinations(axes, n)])

    def _choice(self, name: str, options: list[Value]) -> Value:
        if name not in self.symbols.choices:
            raise Open(name, options)
        return self.symbols.choices[name]

    def _length(
        self,
        attr: s.AttrDecl,
        declared: Declared,
        term: s.Apply,
        args: list[Typed | None],
        env: _Env,
        result: Shape | None,
    ) -> int | None:
        """The length of the list that an attribute goes with: what its type names, else the first tensor's shape.

        None if only the place of the term can tell. Raises ShapeError if nothing does.
        """
        first = args[0] if args else None
        if first is not None and (attr.like is None or attr.like in self._whole(declared)):
            return len(first.shape)
        known: dict[str, Value] = {}
        for name, expr in term.attrs:
            try:
                known[name] = evaluate(expr, env.scope)
            except SpecError:
                continue
        shapes = [None if arg is None else arg.shape for arg in args]
        scope = solve(declared, shapes, known, result=result, theory=_Lenient(), partial=True).scope
        listed = scope.values.get(attr.like or "")
        if isinstance(listed, tuple):
            return len(listed)
        if result is None:
            return None
        raise ShapeError(f"{declared.name}: nothing says how long `{attr.name}` is")

    @staticmethod
    def _whole(declared: Declared) -> set[str]:
        """The name of the first tensor's whole shape, if it is declared `x[*s]`."""
        dims = declared.params[0].dims
        one = dims[0].value if len(dims) == 1 and dims[0].starred else None
        return {one.id} if isinstance(one, s.Name) else set()


class _Lenient(Sizes):
    """Believes everything; used where only the lengths of lists matter."""

    def __init__(self) -> None:
        super().__init__(phase="settled")

    def quotient(self, whole: Quantity, factor: Quantity, what: str) -> Quantity:
        return whole


def instances(
    rule: s.Rule, spec: Spec, choices: Choices, max_rank: int, limits: Limits, *, source_only: bool = False
) -> Iterator[Instance | tuple[Choices, ShapeError]]:
    """All instances of a rule whose left side is well-typed, in a fixed order; with the reason instead where the right
    side is not.

    Raises:
        SpecError: the rule names something that its left side does not bind.
    """
    try:
        yield _instance(rule, spec, choices, max_rank, limits, source_only)
    except (UnboundName, RuleError):
        raise
    except Open as open_:
        for option in open_.options:
            yield from instances(rule, spec, choices | {open_.name: option}, max_rank, limits, source_only=source_only)
    except TargetError as error:
        yield choices, error
    except (ShapeError, SpecError):  # an axis that a tensor of this rank does not have is a SpecError
        return


def _instance(rule: s.Rule, spec: Spec, choices: Choices, max_rank: int, limits: Limits, source_only: bool) -> Instance:
    sizes = Sizes(limits=limits)
    for _ in range(8):
        before = dict(sizes.solution)
        instance = _pass(rule, spec, sizes, choices, max_rank, source_only)
        if sizes.solution == before:
            sizes.phase = "settled"
            return instance
    raise Unsupported("the sizes of the rule do not settle")


def _pass(rule: s.Rule, spec: Spec, sizes: Sizes, choices: Choices, max_rank: int, source_only: bool) -> Instance:
    """Type both sides once, under what is known about the sizes so far."""
    symbols = _Symbols(sizes, choices, max_rank)
    sizes.phase = "source"
    values: dict[str, Value] = _Normed(sizes)
    env = _Env({}, values)
    elaborator = RuleElaborator(spec, symbols, env, tensors_of(rule.source), True)
    source = tuple(_placed(elaborator, term, env) for term in rule.source)
    for node in source:
        _extents(node, sizes, "left side")
    for condition in rule.where:
        scope = Scope(values, {name: symbols.shape(name) for name in env.tensors})
        sizes.assume_or_prove(_cases(condition, scope), "where")
    target: tuple[Typed, ...] = ()
    if not source_only:
        sizes.phase = "target"
        after = RuleElaborator(spec, symbols, _Env(env.tensors, values), (), False)
        try:
            target = tuple(_typed(after, term, after.env, node.shape) for term, node in zip(rule.target, source))
            for left, right in zip(source, target):
                if len(left.shape) != len(right.shape):
                    raise ShapeError(f"the sides have ranks {len(left.shape)} and {len(right.shape)}")
                for a, b in zip(left.shape, right.shape):
                    sizes.equate(a, b, "the shapes of both sides")
                _extents(right, sizes, "right side")
        except UnboundName as error:
            raise RuleError(
                f"the right side of rule {rule.name} uses `{error.name}`, which its left side does not bind",
            ) from error
        except (ShapeError, SpecError) as error:
            raise TargetError(str(error)) from error
    names_ = tensors_of(rule.source)
    return Instance(
        choices, sizes, {name: symbols.shape(name) for name in names_}, dict(values.items()), source, target
    )


def _cases(condition: s.Expr, scope: Scope) -> list[list[Fact]]:
    """The cases of a condition of the rule; a condition of which nothing is understood says nothing."""
    try:
        return cases_of(condition, scope, True)
    except Unsupported:
        return [[]]


class _Normed(dict[str, Value]):
    """Attribute values, with what is known about the sizes put in on the way in."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.sizes = sizes

    def __setitem__(self, name: str, value: Value) -> None:
        super().__setitem__(name, _normed(value, self.sizes))


def _normed(value: Value, sizes: Sizes) -> Value:
    if isinstance(value, tuple):
        return tuple(_normed(v, sizes) for v in value)
    return sizes.norm(value) if hasattr(value, "terms") else value


def _placed(elaborator: RuleElaborator, term: s.Term, env: _Env) -> Typed:
    """A term of the left side; where its shape does not follow from it, shapes are invented."""
    found = elaborator.type(term, env, None)
    if found is None:
        elaborator.guessing = True
        env.memo.clear()
        found = _typed(elaborator, term, env, None)
        elaborator.guessing = False
    return found


def _typed(elaborator: Elaborator, term: s.Term, env: _Env, result: Shape | None) -> Typed:
    found = elaborator.type(term, env, result)
    if found is None:
        raise ShapeError(f"the shape of `{elaborator.open_}` does not follow from its place; write it out")
    return found


def _extents(node: Typed, sizes: Sizes, what: str) -> None:
    """Sizes of intermediate tensors are not negative: known of the left side, to be shown of the right one."""
    for arg in node.args:
        _extents(arg, sizes, what)
    for extent in node.shape:
        if node.kind == "apply" and not isinstance(extent, int):
            sizes.assume_or_prove([[ge(extent)]], what)


def _num(value: int) -> s.Num:
    return s.Num(Fraction(value))
