"""From an equality of two small concrete graphs to a schema that holds for all sizes.

The enumerator finds instances: a 3x3 kernel, stride 1, axis 1. Here every number in an attribute becomes a symbol, and
the numbers of the right side become expressions over those symbols and the sizes of the tensors. What was true of the
instance (stride == 1, pads that keep the size, ...) becomes a pool of facts. If the rule is proved under all facts, the
facts are dropped one by one as long as the proof goes through; what is left is the rule's `where`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

from taso.algebra.poly import Poly, Quantity, exact_quotient, var
from taso.errors import ShapeError, SpecError
from taso.generate.samples import agrees, sample_left
from taso.prove.prover import Verdict, prove_rule
from taso.spec import syntax as s
from taso.spec.elaborate import Typed, elaborate
from taso.spec.evaluate import Scope, Shape, evaluate
from taso.spec.shapes import Declared, Theory
from taso.spec.spec import Spec

NUMERIC = ("int", "ints", "real")
STRUCTURAL = ("axis", "axes", "perm")
ALPHABETS = {0: "rstuvw", 1: "vwuzst", 2: "abcdefgh"}
MANY = "xyzfghuvw"
MAX_WRITINGS, MAX_PROOFS = 240, 6
MODES = ("symbol", "literal", "from the end")


@dataclass(frozen=True)
class Schema:
    """A generalised rule with the verdict of its last proof."""

    rule: s.Rule
    verdict: Verdict


@dataclass(frozen=True)
class Failure:
    """Why an instance became no rule: `refuted` on other values or sizes, or `unknown` to the prover."""

    status: str
    reason: str


@dataclass
class Instance:
    """An equality of concrete graphs, typed: `shapes` gives the sizes of the input tensors."""

    source: tuple[Typed, ...]
    target: tuple[Typed, ...]
    shapes: dict[str, Shape]
    sizes: list[tuple[s.Expr, int]] = field(default_factory=list)


def type_instance(source: Sequence[s.Term], target: Sequence[s.Term], shapes: Mapping[str, Shape], spec: Spec) -> Instance:
    """Type both sides; the tensors get short names by rank. Raises ShapeError where the sides do not fit."""
    order: list[str] = []
    for term in (*source, *target):
        order.extend(name for name in _variables(term) if name not in order)
    names = _short_names(order, shapes)
    renamed = {names[name]: tuple(shapes[name]) for name in order}
    left = tuple(elaborate(_rename(term, names), spec, renamed) for term in source)
    right = tuple(elaborate(_rename(t, names), spec, renamed, result=o.shape) for t, o in zip(target, left))
    return Instance(left, right, renamed)


def _variables(term: s.Term) -> Iterator[str]:
    if isinstance(term, s.Var):
        yield term.name
    elif isinstance(term, s.Apply):
        for arg in term.args:
            yield from _variables(arg)


def _rename(term: s.Term, names: Mapping[str, str]) -> s.Term:
    if isinstance(term, s.Var):
        return s.Var(names[term.name])
    if isinstance(term, s.Apply):
        return replace(term, args=tuple(_rename(arg, names) for arg in term.args))
    return term


def _short_names(order: Iterable[str], shapes: Mapping[str, Shape]) -> dict[str, str]:
    taken: set[str] = set()
    names: dict[str, str] = {}
    for name in order:
        rank = len(shapes[name])
        letters = ALPHABETS.get(rank, MANY)
        own = name[0] if rank > 2 and name[0] in "xfgk" else None
        free = [c for c in (["x", "y", "z"] if own == "x" else []) + list(letters) + list("abcdefghmnopq") if c not in taken]
        names[name] = free[0]
        taken.add(free[0])
    return names


# --- symbols and expressions ---------------------------------------------------------------------------------------


@dataclass
class Symbols:
    """The symbols that stand for the numbers on the left side: by attribute name and value."""

    by_value: dict[tuple[str, Any], str] = field(default_factory=dict)
    kinds: dict[str, str] = field(default_factory=dict)
    values: dict[str, Any] = field(default_factory=dict)
    lows: dict[str, int] = field(default_factory=dict)

    def bound(self, declared: Declared) -> None:
        """Learn from `require stride >= 1` how small an operator's attributes may be."""
        for condition in declared.requires:
            match condition:
                case s.Cmp(">=", s.Name(name), s.Num(low)):
                    self.lows[name] = int(low)

    def low(self, expr: s.Expr) -> int | None:
        """The least value that an attribute symbol may have, None if its operator does not say."""
        return self.lows.get(expr.id.rstrip("0123456789")) if isinstance(expr, s.Name) else None

    def symbol(self, attribute: str, kind: str, value: Any) -> str:
        key = attribute, value
        if key not in self.by_value:
            name, k = attribute, 2
            while name in self.values:
                name, k = f"{attribute}{k}", k + 1
            self.by_value[key], self.kinds[name], self.values[name] = name, kind, value
        return self.by_value[key]


def number(value: Any) -> s.Expr:
    """A literal for a number or a list of numbers."""
    if isinstance(value, tuple):
        return s.ListOf(tuple(number(v) for v in value))
    return s.Num(value if isinstance(value, float) else Fraction(value))


def dim(tensor: str, axis: int) -> s.Expr:
    return s.Call("dim", (s.Name(tensor), s.Num(Fraction(axis))))


def spatial(tensor: str) -> s.Expr:
    """The sizes behind the first two: a kernel's extents."""
    return s.Call("skip", (s.Call("shape", (s.Name(tensor),)), s.Num(Fraction(2))))


ONE, TWO = s.Num(Fraction(1)), s.Num(Fraction(2))


def list_atoms(instance: Instance, symbols: Symbols) -> list[tuple[s.Expr, tuple[int, ...]]]:
    """The lists that the left side knows: symbols of type `ints` and the spatial sizes of its tensors."""
    found: list[tuple[s.Expr, tuple[int, ...]]] = [
        (s.Name(name), symbols.values[name]) for name, kind in symbols.kinds.items() if kind == "ints"
    ]
    found += [(spatial(name), tuple(shape[2:])) for name, shape in instance.shapes.items() if len(shape) > 2]  # type: ignore[misc]
    return found


class _Classes(Theory):
    """Which sizes the left side makes equal: named sizes are united, everything else is let pass."""

    def __init__(self) -> None:
        self.parent: dict[str, str] = {}
        self.fresh = 0

    def find(self, name: str) -> str:
        while name in self.parent:
            name = self.parent[name]
        return name

    def equate(self, left: Quantity, right: Quantity, what: str) -> None:
        if isinstance(left, Poly) and isinstance(right, Poly):
            a, b = (next(iter(q.terms)) if len(q.terms) == 1 else () for q in (left, right))
            if len(a) == len(b) == 1 and isinstance(a[0], str) and isinstance(b[0], str):
                first, second = sorted((self.find(a[0]), self.find(b[0])))
                if first != second:
                    self.parent[second] = first

    def quotient(self, whole: Quantity, factor: Quantity, what: str) -> Quantity:
        exact = exact_quotient(whole, factor)
        self.fresh += 1
        return exact if exact is not None else var(f"quotient {self.fresh}")

    def require(self, condition: s.Expr, scope: Scope, what: str) -> None:
        pass


def distinct_sizes(instance: Instance, left: Sequence[s.Term], symbols: Symbols, spec: Spec) -> list[tuple[s.Expr, int]]:
    """One `dim(x, k)` for each class of sizes that the left side forces to be equal, with its value in the instance."""
    theory = _Classes()
    shapes = {name: tuple(var(f"{name} {k}") for k in range(len(shape))) for name, shape in instance.shapes.items()}
    for term in left:
        try:
            elaborate(term, spec, shapes, symbols.values, theory=theory)
        except (ShapeError, SpecError):
            continue
    found: dict[str, tuple[s.Expr, int]] = {}
    for name, shape in instance.shapes.items():
        for k, size in enumerate(shape):
            if isinstance(size, int):
                found.setdefault(theory.find(f"{name} {k}"), (dim(name, k), size))
    return list(found.values())


def int_expressions(value: int, instance: Instance, symbols: Symbols) -> list[s.Expr]:
    """Expressions with this value, simplest first: a size, a symbol, a sum or difference of two, at last the number."""
    atoms: list[tuple[s.Expr, int]] = list(instance.sizes)
    atoms += [(s.Name(name), symbols.values[name]) for name, kind in symbols.kinds.items() if kind == "int"]
    found: list[s.Expr] = [expr for expr, size in atoms if size == value and value > 0]
    if value <= 0:
        found.append(number(value))
    for (a, va), (b, vb) in itertools.combinations(atoms, 2):
        if va + vb == value:
            found.append(s.Bin("+", a, b))
    if value > 0:
        found.append(number(value))
    for (a, va), (b, vb) in itertools.permutations(atoms, 2):
        if va - vb == value and value > 0:
            found.append(s.Bin("-", a, b))
        elif vb > 1 and va == value * vb:
            found.append(s.Bin("/", a, b))
    return list(dict.fromkeys(found))


def list_expressions(value: tuple[int, ...], instance: Instance, symbols: Symbols) -> list[s.Expr]:
    """Expressions for a list: a list of the left side, a difference of two (over a third), zeros before such a one."""
    atoms = [(expr, v) for expr, v in list_atoms(instance, symbols) if len(v) == len(value)]
    found: list[s.Expr] = [expr for expr, v in atoms if v == value]
    if not atoms and len(value) > 2 and value[:2] == (0, 0):
        prefix = s.ListOf((number(0), number(0)))
        return [*(s.Bin("++", prefix, rest) for rest in list_expressions(value[2:], instance, symbols)), number(value)]
    divisors = [(expr, v) for expr, v in atoms if symbols.low(expr) == 1 and all(x == 1 for x in v)]
    for (a, va), (b, vb) in itertools.permutations(atoms, 2):
        if tuple(x - y for x, y in zip(va, vb)) == value and any(value):
            gap = s.Bin("-", a, b)
            found += [s.Bin("/", gap, expr) for expr, _ in divisors] + [gap]
            if all(isinstance(e, s.Call) for e in (a, b)):
                continue
    for a, va in atoms:
        if tuple((x - 1) // 2 for x in va) == value and any(value):
            found.append(s.Bin("/", s.Bin("-", a, ONE), TWO))
    for (a, va), (b, vb) in itertools.permutations(atoms, 2):
        if tuple((x - y) // 2 for x, y in zip(va, vb)) == value and any(value):
            found.append(s.Bin("/", s.Bin("-", a, b), TWO))
    entries = [int_expressions(v, instance, symbols) for v in value]
    found.append(number(value))
    if not atoms:
        found += [s.ListOf(choice) for choice in itertools.islice(itertools.product(*entries), 8)]
    return list(dict.fromkeys(found))


def pools(instance: Instance, symbols: Symbols) -> list[list[s.Expr]]:
    """What is true of the instance, in pools from general to special.

    Kernels of one size; pads that keep the size, for each symbol that could be the dilation; at last the very numbers.
    """
    lists = list_atoms(instance, symbols)
    names = [(expr, v) for expr, v in lists if isinstance(expr, s.Name)]
    kernels = [(expr, v) for expr, v in lists if isinstance(expr, s.Call) and v and all(x in (1, 3) for x in v)]
    general = [s.Cmp("==", a, b) for (a, va), (b, vb) in itertools.combinations(kernels, 2) if va == vb]
    odd = [s.Cmp("==", s.Bin("%", kernel, TWO), ONE) for kernel, _ in kernels]
    found, every = [general], list[s.Expr]()
    for q, vq in names:
        if symbols.low(q) != 1:
            continue
        relations: list[s.Expr] = []
        for (p, vp), (kernel, vk) in itertools.product(names, kernels):
            half = tuple(y * ((k - 1) // 2) for y, k in zip(vq, vk)) if len(vq) == len(vk) else ()
            if vp == half and symbols.low(p) == 0:
                relations.append(s.Cmp("==", p, s.Bin("*", q, s.Bin("/", s.Bin("-", kernel, ONE), TWO))))
        every += relations
        found.append([*relations, *odd, *general])
    special: list[s.Expr] = [s.Cmp("==", s.Name(name), _flat(value)) for name, value in symbols.values.items()]
    special += [s.Cmp("==", expr, _flat(v)) for expr, v in kernels]
    found.append([*special, *odd, *general])
    return [list(dict.fromkeys(pool)) for k, pool in enumerate(found) if k == 0 or pool != found[k - 1]]


def _flat(value: Any) -> s.Expr:
    """A list of equal numbers is compared with one number."""
    if isinstance(value, tuple) and value and len(set(value)) == 1:
        return number(value[0])
    return number(value)


# --- terms ---------------------------------------------------------------------------------------------------------


@dataclass
class Writer:
    """Writes typed trees as terms; how attributes are written is given."""

    spec: Spec
    numeric: Callable[[str, str, Any], s.Expr]
    mode: str
    structure: dict[tuple[str, Any], str] = field(default_factory=dict)

    def term(self, typed: Typed) -> s.Term:
        if typed.kind == "var":
            return s.Var(typed.head)
        if typed.kind == "literal":
            assert typed.body is not None
            return s.Literal(typed.body)
        declared = self.spec.declared(typed.head)
        attrs: list[tuple[str, s.Expr]] = []
        given = typed.attr
        for attr in declared.attrs:
            value = given[attr.name]
            if attr.type == "real" and _is_default(attr, value):
                continue
            if attr.type in NUMERIC:
                attrs.append((attr.name, self.numeric(attr.name, attr.type, value)))
            elif attr.type in STRUCTURAL:
                attrs.append((attr.name, self._structural(attr, typed, value)))
            elif attr.type == "bool":
                attrs.append((attr.name, s.Name("true" if value else "false")))
            elif not typed.args:  # a constant's own shape cannot come from its arguments; the place may still say it
                continue
        return s.Apply(typed.head, tuple(self.term(arg) for arg in typed.args), tuple(attrs))

    def _structural(self, attr: s.AttrDecl, typed: Typed, value: Any) -> s.Expr:
        if self.mode == "symbol" and value != ():
            key = attr.type, value
            if key not in self.structure:
                self.structure[key] = attr.name if attr.name not in self.structure.values() else f"{attr.name}{len(self.structure)}"
            return s.Name(self.structure[key])
        if self.mode == "from the end" and attr.type != "perm":
            like = typed.attr.get(attr.like or "")
            rank = len(like) if isinstance(like, tuple) else len(typed.args[0].shape)
            return number(tuple(v - rank for v in value) if isinstance(value, tuple) else value - rank)
        return number(value)


def generalise(source: Sequence[s.Term], target: Sequence[s.Term], shapes: Mapping[str, Shape], spec: Spec) -> Schema | Failure:
    """The most general rule of which this equality is an instance, among those that the prover can show.

    Args:
        source, target: terms of core operators with concrete attributes, over tensors with `shapes`.
    """
    try:
        instance = type_instance(source, target, shapes, spec)
    except (ShapeError, SpecError) as error:
        return Failure("unknown", f"the instance cannot be typed: {error}")
    symbols = Symbols()
    for typed in (*instance.source, *instance.target):
        _learn(typed, symbols, spec)
    left = _side(instance.source, Writer(spec, lambda n, k, v: s.Name(symbols.symbol(n, k, v)), "literal"))
    instance.sizes = distinct_sizes(instance, left, symbols, spec)
    found = _with_target(instance, symbols, left, spec)
    if isinstance(found, Failure):
        return found
    rule, choice = found
    rule = _drop_facts(rule, spec)
    return _structure(instance, symbols, choice, rule, spec)


def _learn(typed: Typed, symbols: Symbols, spec: Spec) -> None:
    if typed.kind == "apply":
        symbols.bound(spec.declared(typed.head))
    for arg in typed.args:
        _learn(arg, symbols, spec)


def _side(side: Sequence[Typed], writer: Writer) -> tuple[s.Term, ...]:
    return tuple(writer.term(typed) for typed in side)


def _ranks(instance: Instance) -> s.Ranks:
    return s.Ranks(tuple(instance.shapes), (tuple(len(shape) for shape in instance.shapes.values()),))


Choice = dict[tuple[str, str, Any], s.Expr]  # attribute, its type, its value in the instance


def _target_classes(
    instance: Instance, symbols: Symbols, spec: Spec, shared: bool
) -> list[tuple[tuple[str, str, Any], list[s.Expr]]]:
    """The numbers on the right that no symbol of the left stands for, each with the expressions that could be meant."""
    classes: dict[tuple[str, str, Any], list[s.Expr]] = {}

    def visit(typed: Typed) -> None:
        for arg in typed.args:
            visit(arg)
        if typed.kind != "apply":
            return
        for attr in spec.declared(typed.head).attrs:
            value = typed.attr[attr.name]
            if attr.type not in NUMERIC or (attr.name, value) in symbols.by_value:
                continue
            if attr.type == "real" and _is_default(attr, value):
                continue
            key = ("" if shared and attr.type == "int" else attr.name), attr.type, value
            if key not in classes:
                if attr.type == "int":
                    default = attr.default is not None and _is_default(attr, value)
                    classes[key] = [number(value)] if default else int_expressions(value, instance, symbols)
                elif attr.type == "ints":
                    default = attr.default is not None and _is_default(attr, value)
                    options = [_flat(value)] if default else list_expressions(value, instance, symbols)
                    classes[key] = sorted(options, key=lambda e: not _about(attr.name, e))[:8]
                else:
                    classes[key] = [number(value)]

    for typed in instance.target:
        visit(typed)
    return list(classes.items())


def _about(attribute: str, expr: s.Expr) -> bool:
    """Whether an expression is a difference or quotient of symbols for the attribute of this name."""
    match expr:
        case s.Bin("++", _, right):
            return _about(attribute, right)
        case s.Bin("/", left, _):
            return _about(attribute, left)
        case s.Bin("-", s.Name(a), s.Name(b)):
            return a.rstrip("0123456789") == b.rstrip("0123456789") == attribute
    return False


def _is_default(attr: s.AttrDecl, value: Any) -> bool:
    try:
        default = evaluate(attr.default, Scope()) if attr.default is not None else None
    except SpecError:
        return False
    return bool(value == default or (isinstance(value, tuple) and all(v == default for v in value)))


def _with_target(instance: Instance, symbols: Symbols, left: tuple[s.Term, ...], spec: Spec) -> tuple[s.Rule, Choice] | Failure:
    """The first writing of the right side that is proved under the most general pool of facts that allows any."""
    choices = list(_choices(instance, symbols, spec))
    status, reason = "refuted", "on other sizes or values no writing of the right side agrees with the left side"
    for pool in pools(instance, symbols):
        samples = sample_left(s.Rule("r", left, left, tuple(pool), _ranks(instance)), spec)
        proofs, fallback = 0, None
        for choice in choices if samples else ():
            right = _side(instance.target, Writer(spec, _numeric(symbols, choice), "literal"))
            whole = _whole(choice.values())
            if not agrees(right, whole, samples, spec):
                continue
            rule = s.Rule("r", left, right, (*pool, *whole), _ranks(instance))
            verdict = prove_rule(rule, spec, refute_first=False, tries=12)
            if verdict.status == "proved" and not verdict.conditions:
                return rule, choice
            if verdict.status == "proved":
                fallback = fallback or (replace(rule, where=(*rule.where, *lifted(verdict.conditions))), choice)
                continue
            status, reason = verdict.status, verdict.reason or str(verdict.counterexample or "")
            proofs += 1
            if proofs == MAX_PROOFS:
                break
        if fallback is not None:
            return fallback
    return Failure(status, reason)


def _choices(instance: Instance, symbols: Symbols, spec: Spec) -> Iterator[Choice]:
    """Ways to write the numbers of the right side, the plainest first: equal whole numbers mean the same, then by attribute."""
    tried: list[Choice] = []
    for shared in (True, False):
        classes = _target_classes(instance, symbols, spec, shared)
        ranked = itertools.islice(itertools.product(*(list(enumerate(options)) for _, options in classes)), 4000)

        def plainness(combination: tuple[tuple[int, s.Expr], ...]) -> tuple[int, int]:
            divisors = {name for _, expr in combination for name in _names(expr) if symbols.lows.get(name) == 1}
            return len(divisors), sum(k for k, _ in combination)

        for combination in sorted(ranked, key=plainness)[:MAX_WRITINGS]:
            choice: Choice = {key: expr for (key, _), (_, expr) in zip(classes, combination)}
            if not shared:
                choice["", "", None] = ONE  # marks that whole numbers are looked up by attribute
            if choice not in tried:
                tried.append(choice)
                yield choice
        if not any(kind == "int" for (_, kind, _), _ in classes):
            return


def _names(expr: s.Expr) -> set[str]:
    match expr:
        case s.Name(name):
            return {name}
        case s.Bin(_, left, right):
            return _names(left) | _names(right)
    return set()


def lifted(conditions: Sequence[s.Expr]) -> tuple[s.Expr, ...]:
    """Conditions on single spatial axes as conditions on lists, where all axes have the same one.

    `dim(f, 2) == 3, dim(f, 3) == 3` becomes `skip(shape(f), 2) == 3`, which serves every rank.
    """
    found: dict[s.Expr, None] = {}
    for condition in conditions:
        found.setdefault(_lift(condition) or condition)
    return tuple(found)


def _lift(expr: s.Expr, axis: list[int] | None = None) -> s.Expr | None:
    seen: list[int] = [] if axis is None else axis

    def lift(e: s.Expr) -> s.Expr | None:
        match e:
            case s.Call("dim", (s.Name(tensor), s.Num(k))) if k >= 2:
                seen.append(int(k) - 2)
                return spatial(tensor)
            case s.Call("at", (s.Name() as listed, s.Num(k))):
                seen.append(int(k))
                return listed
            case s.Bin(op, left, right) | s.Cmp(op, left, right):
                a, b = lift(left), lift(right)
                return type(e)(op, a, b) if a is not None and b is not None else None
            case s.Num():
                return e
        return None

    result = lift(expr)
    return result if result is not None and len(set(seen)) == 1 else None


def _numeric(symbols: Symbols, choice: Choice) -> Callable[[str, str, Any], s.Expr]:
    def write(name: str, kind: str, value: Any) -> s.Expr:
        known = symbols.by_value.get((name, value))
        if known is not None:
            return s.Name(known)
        return choice["" if kind == "int" and ("", "", None) not in choice else name, kind, value]

    return write


def _whole(expressions: Iterable[s.Expr]) -> list[s.Expr]:
    """For the differences and quotients that the right side introduces: nothing is negative, nothing is left over."""
    found: list[s.Expr] = []

    def visit(expr: s.Expr) -> None:
        if isinstance(expr, s.Bin):
            visit(expr.left)
            visit(expr.right)
            if expr.op == "/":
                found.append(s.Cmp("==", s.Bin("%", expr.left, expr.right), s.Num(Fraction(0))))
            if expr.op == "-":
                found.append(s.Cmp(">=", expr.left, expr.right))

    for expr in expressions:
        visit(expr)
    return list(dict.fromkeys(found))


def _drop_facts(rule: s.Rule, spec: Spec) -> s.Rule:
    """Drop conditions as long as the rule stays proved: first all relations against what sizes really need, then one by one."""
    relations = [c for c in rule.where if isinstance(c, s.Cmp) and c.op == "==" and isinstance(c.left, s.Name)]
    bare = replace(rule, where=tuple(c for c in rule.where if c not in relations and not _parity(c)))
    if len(bare.where) < len(rule.where):
        verdict = prove_rule(bare, spec, tries=12)
        if verdict.status == "proved":
            weaker = replace(bare, where=(*bare.where, *lifted(verdict.conditions)))
            again = prove_rule(weaker, spec, tries=12) if verdict.conditions else verdict
            if again.status == "proved" and not again.conditions:
                rule = weaker
    for condition in rule.where:
        fewer = replace(rule, where=tuple(c for c in rule.where if c != condition))
        verdict = prove_rule(fewer, spec, tries=12)
        if verdict.status == "proved" and not verdict.conditions:
            rule = fewer
    return rule


def _parity(condition: s.Expr) -> bool:
    return isinstance(condition, s.Cmp) and isinstance(condition.left, s.Bin) and condition.left.op == "%" and condition.right == ONE


def _structure(instance: Instance, symbols: Symbols, choice: Choice, rule: s.Rule, spec: Spec) -> Schema | Failure:
    """Write axes as symbols, from the end or as they are: whichever is proved for the most ranks."""
    best: Schema | None = None
    seen: set[s.Rule] = set()
    for mode in MODES:
        structure: dict[tuple[str, Any], str] = {}
        left = _side(instance.source, Writer(spec, _numeric(symbols, choice), mode, structure))
        on_left = dict(structure)
        right = _side(instance.target, Writer(spec, _numeric(symbols, choice), mode, structure))
        if structure != on_left:
            continue  # an axis of the right side that the left does not name
        variant = replace(rule, source=left, target=right, ranks=None)
        if variant in seen:
            continue
        seen.add(variant)
        verdict = prove_rule(variant, spec)
        if verdict.status != "proved" or verdict.conditions or verdict.ranks is None:
            continue
        if best is None or len(verdict.ranks.choices) > len(best.verdict.ranks.choices if best.verdict.ranks else ()):
            best = Schema(replace(variant, ranks=verdict.ranks), verdict)
    if best is None:
        verdict = prove_rule(rule, spec)
        if verdict.status != "proved":
            return Failure(verdict.status, verdict.reason)
        best = Schema(rule, verdict)
    return replace(best, rule=tidy(best.rule, spec))


# --- tidying -------------------------------------------------------------------------------------------------------


def tidy(rule: s.Rule, spec: Spec) -> s.Rule:
    """Conditions `symbol == number` are written into the terms; attributes that have their default are left out."""
    fixed: dict[str, s.Expr] = {}
    rest: list[s.Expr] = []
    for condition in rule.where:
        match condition:
            case s.Cmp("==", s.Name(name), s.Num() as value):
                fixed[name] = value
            case _:
                rest.append(condition)

    for name in [n for n in fixed if any(_joined(n, t) for t in (*rule.source, *rule.target))]:
        rest.append(s.Cmp("==", s.Name(name), fixed.pop(name)))  # a number cannot stand where a list is joined

    def expr(e: s.Expr) -> s.Expr:
        match e:
            case s.Name(name) if name in fixed:
                return fixed[name]
            case s.Bin(op, left, right):
                return s.Bin(op, expr(left), expr(right))
            case s.Cmp(op, left, right):
                return s.Cmp(op, expr(left), expr(right))
            case s.ListOf(items):
                return s.ListOf(tuple(expr(i) for i in items))
        return e

    def term(t: s.Term) -> s.Term:
        if not isinstance(t, s.Apply):
            return t
        defaults = {attr.name: attr.default for attr in spec.declared(t.op).attrs}
        attrs = tuple((name, expr(value)) for name, value in t.attrs)
        return s.Apply(t.op, tuple(map(term, t.args)), tuple((n, e) for n, e in attrs if defaults[n] is None or e != defaults[n]))

    return replace(
        rule, source=tuple(map(term, rule.source)), target=tuple(map(term, rule.target)), where=tuple(expr(c) for c in rest)
    )


def _joined(name: str, term: s.Term) -> bool:
    """Whether a symbol is an operand of `++` in a term."""

    def within(expr: s.Expr) -> bool:
        match expr:
            case s.Bin("++", left, right):
                return name in (getattr(left, "id", ""), getattr(right, "id", "")) or within(left) or within(right)
            case s.Bin(_, left, right):
                return within(left) or within(right)
        return False

    if not isinstance(term, s.Apply):
        return False
    return any(within(expr) for _, expr in term.attrs) or any(_joined(name, arg) for arg in term.args)
