"""Rules as text: writing what `taso.spec.parse` reads, and whole files of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction
from pathlib import Path

from taso.errors import SpecError
from taso.files import write_whole
from taso.rules.rule import RuleEntry
from taso.spec import syntax as s
from taso.spec.parse import parse_file

WIDTH = 120

# How tightly expressions bind, loosest first; an operand that binds looser than its place asks for gets brackets.
_COND, _ARITH, _JOIN, _SUM, _PRODUCT, _UNARY, _ATOM = range(7)
_LEVEL = {"++": _JOIN, "+": _SUM, "-": _SUM, "*": _PRODUCT, "/": _PRODUCT, "%": _PRODUCT}


def format_expr(expr: s.Expr) -> str:
    """An expression or condition as `parse_expr` reads it.

    Raises SpecError for what the language cannot write: a comparison inside arithmetic, `or` inside `and`.
    """
    return _expr(expr, _COND)


def format_term(term: s.Term) -> str:
    """A term as `parse_term` reads it."""
    match term:
        case s.Var(name):
            return name
        case s.Literal(s.Num(value)) if isinstance(value, Fraction) and _decimal(abs(value)) is not None:
            return _number(value)
        case s.Literal(value):
            return f"`{_expr(value, _ARITH)}`"
        case s.Apply(op, args, attrs):
            tensors = ", ".join(map(format_term, args))
            return f"{op}({tensors}{_attrs(attrs)})"
        case s.Choose(condition, then, otherwise):
            return f"if {format_expr(condition)} then {format_term(then)} else {format_term(otherwise)}"
        case s.Fold(op, over, attrs):
            return f"fold({op}, {over}{_attrs(attrs)})"
    raise AssertionError(term)


def format_rule(rule: s.Rule) -> str:
    """A rule as `parse_rule` reads it: one line if it fits, with conditions and records below."""
    source, target = _side(rule.source), _side(rule.target)
    line = f"rule {rule.name}  {source}  ==>  {target}"
    lines = [line] if len(line) <= WIDTH else [f"rule {rule.name}", f"    {source}", f"    ==> {target}"]
    if rule.where:
        lines.append(f"    where {', '.join(map(format_expr, rule.where))}")
    if rule.ranks is not None:
        choices = ", ".join(f"({', '.join(map(str, choice))})" for choice in rule.ranks.choices)
        lines.append(f"    ranks ({', '.join(rule.ranks.names)}) in [{choices}]")
    lines += [f"    {record}" for record in rule.records]
    return "\n".join(lines)


def read_rules(path: Path) -> list[RuleEntry]:
    """The rules of a file, or of all `*.rules` files under a folder, in sorted order.

    Raises SpecError if a file cannot be read, holds something else than rules, or names a rule twice.
    """
    if not path.exists():
        raise SpecError("no such file or folder", path=str(path))
    entries: list[RuleEntry] = []
    for file in sorted(path.rglob("*.rules")) if path.is_dir() else [path]:
        seen: set[str] = set()
        for item in parse_file(file):
            if not isinstance(item, s.Rule):
                raise SpecError("only rules belong here", path=str(file), line=item.pos.line, column=item.pos.column)
            if item.name in seen:
                raise SpecError(
                    f"rule `{item.name}` is here twice", path=str(file), line=item.pos.line, column=item.pos.column
                )
            seen.add(item.name)
            entries.append(RuleEntry(item, file))
    return entries


def write_rules(path: Path, rules: Iterable[s.Rule], header: Sequence[str] = ()) -> None:
    """Write a rules file in one piece: header lines as comments, then the rules in the order given.

    The same rules and header give the same bytes; a reader never sees half a file.
    """
    blocks = ["\n".join(f"# {line}".rstrip() for line in header)] if header else []
    text = "\n\n".join([*blocks, *map(format_rule, rules)]) + "\n"
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, text.encode())


# --- pieces --------------------------------------------------------------------------------------------------------


def _side(terms: tuple[s.Term, ...]) -> str:
    return format_term(terms[0]) if len(terms) == 1 else f"{{{', '.join(map(format_term, terms))}}}"


def _attrs(attrs: tuple[tuple[str, s.Expr], ...]) -> str:
    return "; " + ", ".join(f"{name} = {_expr(value, _ARITH)}" for name, value in attrs) if attrs else ""


def _decimal(value: Fraction) -> str | None:
    """A nonnegative number as the grammar writes it, exactly; None if it has no finite decimal form."""
    twos = fives = 0
    rest = value.denominator
    while rest % 2 == 0:
        rest, twos = rest // 2, twos + 1
    while rest % 5 == 0:
        rest, fives = rest // 5, fives + 1
    if rest != 1:
        return None
    places = max(twos, fives)
    digits = str(value.numerator * 10**places // value.denominator).rjust(places + 1, "0")
    return digits if places == 0 else f"{digits[:-places]}.{digits[-places:]}"


def _number(value: Fraction | float) -> str:
    if value < 0:
        return f"-{_number(-value)}"
    if value == float("inf"):
        return "inf"
    exact = Fraction(value)
    return _decimal(exact) or f"({exact.numerator} / {exact.denominator})"


def _expr(expr: s.Expr, place: int) -> str:
    text, level = _written(expr)
    if level >= place:
        return text
    if level == _COND:
        raise SpecError(f"`{text}` cannot be written inside another expression")
    return f"({text})"


def _written(expr: s.Expr) -> tuple[str, int]:
    """An expression and how tightly it binds."""
    match expr:
        case s.Num(value):
            return _number(value), _UNARY if value < 0 else _ATOM
        case s.Str(value):
            return f'"{value}"', _ATOM
        case s.Name(name):
            return name, _ATOM
        case s.Neg(value):
            return f"-{_expr(value, _UNARY)}", _UNARY
        case s.Bin(op, left, right):
            level = _LEVEL[op]
            gap = " " if level != _PRODUCT or op == "%" else ""
            return f"{_expr(left, level)}{gap}{op}{gap}{_expr(right, level + 1)}", level
        case s.Cmp(op, left, right):
            return f"{_expr(left, _ARITH)} {op} {_expr(right, _ARITH)}", _COND
        case s.Logic("not", (operand,)):
            inner = format_expr(operand)
            if isinstance(operand, s.Logic) and operand.op != "not":
                raise SpecError(f"`{inner}` cannot be written inside `not`")
            return f"not {inner}", _COND
        case s.Logic(op, operands):
            if any(isinstance(o, s.Logic) and (o.op == op or (op == "and" and o.op == "or")) for o in operands):
                raise SpecError(f"an `{op}` of these conditions cannot be written")
            return f" {op} ".join(map(format_expr, operands)), _COND
        case s.Call(function, args):
            return f"{function}({_items(args)})", _ATOM
        case s.Star(value):
            return f"*{_expr(value, _ATOM)}", _ATOM
        case s.ListOf(items):
            return f"[{_items(items)}]", _ATOM
        case s.Read(tensor, index, fill):
            outside = "" if fill is None else f" | {_expr(fill, _ARITH)}"
            return f"{tensor}[{_items(index)}{outside}]", _ATOM
        case s.Reduce(kind, binders, body):
            bound = ", ".join(f"{'*' if b.starred else ''}{b.name} < {_expr(b.bound, _SUM)}" for b in binders)
            return f"{kind}({bound}) {_expr(body, _PRODUCT)}", _SUM
        case s.If(condition, then, otherwise):
            return f"if {format_expr(condition)} then {_expr(then, _ARITH)} else {_expr(otherwise, _ARITH)}", _ARITH
    raise AssertionError(expr)


def _items(items: tuple[s.Expr, ...]) -> str:
    return ", ".join(_expr(item, _ARITH) for item in items)
