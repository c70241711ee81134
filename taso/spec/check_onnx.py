"""Static check of the ONNX mapping: operators, attributes and inputs must be what onnx's schemas know."""

from __future__ import annotations

from typing import Any

from taso.spec import syntax as s
from taso.spec.check_expr import ExprChecker, Kind, Names, listing, suggestion
from taso.spec.node import known_types, newest_opset, schema

_EXPECTED = {"INTS": "ints", "INT": "int", "FLOAT": "real", "STRING": "str", "FLOATS": "list"}
_NAMED = {
    "INTS": "a list of whole numbers",
    "INT": "a whole number",
    "FLOAT": "a number",
    "STRING": "a string",
    "FLOATS": "a list",
}


def check_form(check: ExprChecker, form: s.OnnxForm, attrs: dict[str, Kind]) -> None:
    """A form must be a legal node in every opset from `since` to `until` (or the newest)."""
    for opset, found in _schemas(check, form):
        _check_written(check, form, found, opset, attrs)
        _check_inputs(check, form, found, opset)
        if check.problems:
            return


def check_import(check: ExprChecker, line: s.Import | s.Content) -> None:
    """The listed attributes and the inputs must exist in some opset of the range."""
    schemas = _schemas(check, line)
    if not schemas:
        return
    known = {name for _, found in schemas for name in found.attributes}
    for name, default in line.attrs:
        if name not in known and name not in _historic(line):
            pos = default.pos if default is not None else line.pos
            check.problem(
                f"{line.op_type} has no attribute `{name}` in these opsets",
                pos,
                suggestion(name, known) or f"it has {listing(sorted(known))}",
            )
    count = len(line.params) - any(param.kind == "variadic" for param in line.params)
    if all(count > found.max_input for _, found in schemas):
        check.problem(
            f"{line.op_type} takes at most {max(found.max_input for _, found in schemas)} inputs, not {count}", line.pos
        )
    if all(count < found.min_input for _, found in schemas) and count == len(line.params):
        check.problem(
            f"{line.op_type} takes at least {min(found.min_input for _, found in schemas)} inputs, not {count}",
            line.pos,
        )


def _historic(line: s.Import | s.Content) -> set[str]:
    """Attributes of the operator in any opset: one line may serve several versions, and models carry old ones on."""
    return {
        name
        for opset in range(1, newest_opset(line.domain) + 1)
        for name in getattr(schema(line.op_type, line.domain, opset), "attributes", ())
    }


def check_role(check: ExprChecker, role: s.Role) -> None:
    """The named operators must exist."""
    types = known_types(role.domain)
    for op_type in role.op_types:
        if types and op_type not in types:
            check.problem(f"onnx has no operator `{op_type}`", role.pos, suggestion(op_type, types))


def _schemas(check: ExprChecker, line: s.OnnxForm | s.Import | s.Content) -> list[tuple[int, Any]]:
    """(opset, schema) for each version of the operator in the range; problems if there is none at its ends."""
    newest = newest_opset(line.domain)
    if not newest:
        return []  # a domain that onnx has no schemas for
    last = line.until if line.until is not None else newest
    if line.since < 1 or last < line.since:
        check.problem(f"since {line.since} until {last} is no range of opsets", line.pos)
        return []
    if line.since > newest:
        return []  # newer than the installed onnx
    if line.op_type not in known_types(line.domain):
        check.problem(
            f"onnx has no operator `{line.op_type}`", line.pos, suggestion(line.op_type, known_types(line.domain))
        )
        return []
    found: list[tuple[int, Any]] = []
    for opset in range(line.since, min(last, newest) + 1):
        one = schema(line.op_type, line.domain, opset)
        if one is None:
            hint = "it exists " + _range(line.op_type, line.domain)
            check.problem(f"{line.op_type} does not exist in opset {opset}", line.pos, hint)
            return []
        if not found or found[-1][1].since_version != one.since_version:
            found.append((opset, one))
    return found


def _range(op_type: str, domain: str) -> str:
    opsets = [opset for opset in range(1, newest_opset(domain) + 1) if schema(op_type, domain, opset) is not None]
    return f"from opset {min(opsets)} to {max(opsets)}" if opsets else "no longer"


def _check_written(check: ExprChecker, form: s.OnnxForm, found: Any, opset: int, attrs: dict[str, Kind]) -> None:
    written = dict(form.attrs)
    for name, expr in form.attrs:
        declared = found.attributes.get(name)
        if declared is None:
            hint = suggestion(name, found.attributes) or f"it has {listing(sorted(found.attributes))}"
            check.problem(f"{form.op_type} has no attribute `{name}` in opset {opset}", expr.pos, hint)
            continue
        expected = _EXPECTED.get(declared.type.name)
        kind = attrs[name]
        fits = {"ints": ("list",), "int": ("int", "bool"), "real": ("int", "real"), "str": ("str",), "list": ("list",)}
        if expected is None:
            check.problem(
                f"attribute `{name}` of {form.op_type} is a {declared.type.name.lower()}, which cannot be written",
                expr.pos,
            )
        elif kind.what != "any" and kind.what not in fits[expected]:
            check.problem(f"attribute `{name}` of {form.op_type} is {_NAMED[declared.type.name]}, not {kind}", expr.pos)
    for name, declared in found.attributes.items():
        if declared.required and name not in written:
            check.problem(f"{form.op_type} needs the attribute `{name}` in opset {opset}", form.pos)


def _check_inputs(check: ExprChecker, form: s.OnnxForm, found: Any, opset: int) -> None:
    count = len(form.args)
    if not found.min_input <= count <= found.max_input:
        span = f"{found.min_input}" if found.min_input == found.max_input else f"{found.min_input} to {found.max_input}"
        check.problem(f"{form.op_type} takes {span} inputs in opset {opset}, not {count}", form.pos)
        return
    options = [str(one.option).rsplit(".", 1)[-1] for one in found.inputs]
    for k, arg in enumerate(form.args):
        if arg.kind == "none" and k < len(options) and options[k] != "Optional":
            check.problem(f"input {k + 1} of {form.op_type} cannot be left out", arg.pos)
    if form.variadic and (not options or options[-1] != "Variadic"):
        check.problem(f"{form.op_type} does not take any number of inputs, so that the form is not variadic", form.pos)


def check_attributes(check: ExprChecker, form: s.OnnxForm, names: Names) -> dict[str, Kind]:
    """The kinds of a form's attributes; a name that is written twice is a problem."""
    kinds: dict[str, Kind] = {}
    for name, expr in form.attrs:
        if name in kinds:
            check.problem(f"attribute `{name}` is written twice", expr.pos)
        kinds[name] = check.kind(expr, names)
    return kinds
