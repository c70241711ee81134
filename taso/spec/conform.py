"""Does a declared operator mean what ONNX means? Random nodes, our meaning against onnx's reference implementation.

Every `onnx` form of an operator or macro is tried in its first opset, its last one and some in between.
"""

from __future__ import annotations

import math
import random
import zlib
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from taso.errors import SpecError, TasoError
from taso.spec import syntax as s
from taso.spec.elaborate import elaborate
from taso.spec.evaluate import Scope, evaluate, holds, real_division
from taso.spec.lower import run_term, run_typed
from taso.spec.node import NodeCase, NotRun, is_current, legal, newest_opset, run_reference, run_runtime, schema
from taso.spec.sample import Concrete, Sample, draw, draw_tensor
from taso.spec.shapes import Declared
from taso.spec.spec import Spec
from taso.spec.value import Value

if TYPE_CHECKING:
    from taso.spec.axioms import AxiomResult

TOLERANCE = {np.float64: 1e-6, np.float32: 2e-3}  # attributes are float32 in ONNX, hence not less than 1e-6
KINDS = ("any", "whole", "positive")
SHOWN_FAILURES = 3


@dataclass
class Conformance:
    """How an operator (or an import line) compares with ONNX.

    Attributes:
        cases: how many nodes were compared; `forms` how many forms they are of.
        max_error: the largest |ours - theirs| / (1 + |theirs|).
        failures: what differs, with the node and the values; empty if nothing does.
        notes: nodes that only onnxruntime could decide, forms for which no fitting node was found.
    """

    op: str
    forms: int = 0
    cases: int = 0
    max_error: float = 0.0
    failures: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Nothing differs, and something was compared if there is anything to compare."""
        return not self.failures and (self.cases > 0 or self.forms == 0)

    @property
    def status(self) -> str:
        """same, differs, or no form (the operator cannot be written in ONNX by itself)."""
        return "differs" if not self.ok else "same" if self.forms else "no form"

    def note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)


def conform(spec: Spec, op_name: str, *, tries: int = 20, seed: int = 0) -> Conformance:
    """Compare every `onnx` form of an operator or macro with ONNX, on `tries` random nodes each.

    The same arguments give the same nodes. Raises SpecError if there is no such operator.
    """
    declared = spec.declared(op_name)
    found = Conformance(op_name, len(declared.onnx))
    for number, form in enumerate(declared.onnx):
        rng = random.Random(zlib.crc32(f"{seed} {op_name} {number}".encode()))
        compare(found, partial(_case, spec, declared, form, rng), tries)
    return found


Case = tuple[np.ndarray, NodeCase, int]  # our value, the node, which of its outputs


def compare(found: Conformance, draw_case: Callable[[int], Case | None], tries: int) -> None:
    """Judge `tries` cases; those that no runtime can run are drawn again, up to four times as many."""
    before, skipped = found.cases, Counter[str]()
    for k in range(4 * tries):
        if found.cases - before >= tries or len(found.failures) >= SHOWN_FAILURES:
            break
        try:
            case = draw_case(k)
        except SpecError as error:  # the shapes fit, yet the meaning cannot be computed
            found.failures.append(f"it has no value: {error.problem}")
            continue
        if case is None:
            skipped["no node was found to which it applies"] += 1
            if skipped.total() > tries and found.cases == before:
                break
            continue
        reason = judge(found, *case)
        if reason:
            skipped[reason] += 1
    if found.cases == before and not found.failures:
        reason = skipped.most_common(1)[0][0] if skipped else "nothing was tried"
        found.failures.append(f"nothing was compared: {reason}")


def _case(spec: Spec, declared: Declared, form: s.OnnxForm, rng: random.Random, k: int) -> Case | None:
    opset = _opset(form, rng, k)
    for _ in range(30):  # samples for which the form's condition does not hold are drawn again
        built = _build(spec, declared, form, opset, rng, KINDS[k % len(KINDS)])
        if built is not None:
            return *built, 0
    return None


def _opset(form: s.OnnxForm, rng: random.Random, k: int) -> int:
    last = form.until or newest_opset(form.domain)
    return (form.since, last, rng.randint(form.since, max(form.since, last)))[k % 3]


def _build(
    spec: Spec, declared: Declared, form: s.OnnxForm, opset: int, rng: random.Random, kind: str
) -> tuple[np.ndarray, NodeCase] | None:
    """A random application by our meaning, and as an ONNX node."""
    sample = draw(declared, rng)
    if sample is None or not form_applies(form, sample.scope):
        return None
    tensors = {p.name: draw_tensor(shape, rng, kind) for p, shape in zip(declared.params, sample.shapes)}
    written: dict[str, np.ndarray] = dict(tensors)
    if form.broadcasting:
        _stretch(spec, declared, sample, tensors, written, rng, kind)
    term = s.Apply(declared.name, tuple(s.Var(p.name) for p in declared.params), _attr_names(declared))
    try:
        typed = elaborate(term, spec, {name: tensor.shape for name, tensor in tensors.items()}, sample.attrs)
        inputs, constant = form_inputs(spec, form, sample.scope, written)
    except TasoError:  # a macro's requirement, or shapes that only its definition refuses
        return None
    ours = run_typed(typed, spec, tensors)
    if form.variadic:
        ours, extra = _more(spec, declared, sample, ours, rng, kind)
        inputs = [*inputs, *extra]
    attributes = {name: form_attribute(form, name, expr, opset, sample.scope) for name, expr in form.attrs}
    return ours, NodeCase(form.op_type, form.domain, opset, tuple(inputs), attributes, 1, constant)


def _attr_names(declared: Declared) -> tuple[tuple[str, s.Expr], ...]:
    return tuple((attr.name, s.Name(attr.name)) for attr in declared.attrs)


def form_applies(form: s.OnnxForm, scope: Scope) -> bool:
    """Whether the condition of a form holds."""
    return form.when is None or holds(form.when, scope) is True


def form_inputs(
    spec: Spec, form: s.OnnxForm, scope: Scope, tensors: Mapping[str, np.ndarray]
) -> tuple[list[np.ndarray | None], frozenset[int]]:
    """The inputs of the node that a form describes, and which of them are written as constants."""
    inputs: list[np.ndarray | None] = []
    constant = set()
    for k, arg in enumerate(form.args):
        if isinstance(arg.value, (s.Var, s.Apply, s.Literal, s.Choose, s.Fold)):
            used = {name: tensor for name, tensor in tensors.items() if name in _vars(arg.value)}
            inputs.append(run_term(arg.value, spec, used, scope.values))
        elif arg.value is None:
            inputs.append(None)
        else:
            exact = arg.kind == "ints"
            value = evaluate(arg.value if exact else real_division(arg.value), scope)
            inputs.append(np.asarray(value, np.int64) if exact else np.asarray(float(value)))
            constant.add(k)
    return inputs, frozenset(constant)


def form_attribute(form: s.OnnxForm, name: str, expr: s.Expr, opset: int, scope: Scope) -> Value:
    """The value of an attribute of a form; `/` is real division if ONNX's attribute is a real number."""
    known = schema(form.op_type, form.domain, opset)
    is_real = known is not None and name in known.attributes and known.attributes[name].type.name.startswith("FLOAT")
    return evaluate(real_division(expr) if is_real else expr, scope)


def _vars(term: s.Term) -> set[str]:
    match term:
        case s.Var(name):
            return {name}
        case s.Apply(_, args):
            return {name for arg in args for name in _vars(arg)}
        case s.Choose(_, then, otherwise):
            return _vars(then) | _vars(otherwise)
    return set()


def _stretch(
    spec: Spec, declared: Declared, sample: Sample, tensors: dict[str, np.ndarray], written: dict[str, np.ndarray],
    rng: random.Random, kind: str,
) -> None:  # fmt: skip
    """Replace one tensor by a smaller one that is repeated: ours explicitly, ONNX's by the `implicit` form."""
    repeaters = [op for op in spec.operators.values() if op.implicit is not None and len(op.params) == 1]
    names = [p.name for p in declared.params]
    if not repeaters or rng.random() < 0.25:
        return
    repeater, which = rng.choice(repeaters), rng.randrange(len(names))
    place: Concrete = sample.shapes[which]
    given = {attr.name: place for attr in repeater.attrs if attr.type == "shape"}
    small = draw(repeater, rng, attrs=given)
    if small is None or repeater.implicit is None:
        return
    inner = repeater.params[0].name
    tensor = draw_tensor(small.shapes[0], rng, kind)
    tensors[names[which]] = run_term(
        s.Apply(repeater.name, (s.Var(inner),), _attr_names(repeater)), spec, {inner: tensor}, small.attrs
    )
    implied = run_term(repeater.implicit, spec, {inner: tensor}, small.scope.values)
    if np.broadcast_shapes(implied.shape, *(t.shape for name, t in written.items() if name != names[which])) == place:
        written[names[which]] = implied
    else:
        written[names[which]] = tensors[names[which]]


def _more(
    spec: Spec, declared: Declared, sample: Sample, value: np.ndarray, rng: random.Random, kind: str
) -> tuple[np.ndarray, list[np.ndarray]]:
    """Fold further tensors onto a result: what a variadic form writes as more inputs of one node."""
    extra: list[np.ndarray] = []
    first, second = (p.name for p in declared.params)
    for _ in range(rng.choice([0, 1, 2])):
        again = draw(declared, rng, shapes={0: value.shape}, attrs=sample.attrs)
        if again is None:
            break
        extra.append(draw_tensor(again.shapes[1], rng, kind))
        term = s.Apply(declared.name, (s.Var(first), s.Var(second)), _attr_names(declared))
        value = run_term(term, spec, {first: value, second: extra[-1]}, sample.attrs)
    return value, extra


# --- the whole specification ---------------------------------------------------------------------------------------


@dataclass
class SpecReport:
    """Everything that `taso spec check` finds out: `rows` for operators, macros and import lines, and the axioms."""

    rows: list[Conformance] = field(default_factory=list)
    axioms: list[AxiomResult] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Every row agrees with ONNX and no axiom is refuted."""
        return all(row.ok for row in self.rows) and all(axiom.status != "refuted" for axiom in self.axioms)

    def to_dict(self) -> dict[str, Any]:
        """The report as JSON has it."""
        rows = [{**asdict(row), "status": row.status} for row in self.rows]
        return {"ok": self.ok, "rows": rows, "axioms": [asdict(axiom) for axiom in self.axioms]}


def check_all(
    spec: Spec, *, progress: Callable[[str, int, int], None] | None = None, tries: int = 20, seed: int = 0
) -> SpecReport:
    """Compare every operator, macro and import line with ONNX, and prove or refute every axiom.

    Args:
        progress: is told what comes next, how many things are done and how many there are.
    """
    from taso.spec.axioms import check_axioms  # the prover and the reader of models stand on top of this package
    from taso.spec.conform_imports import conform_import, import_title

    lines = [line for lines in spec.imports.values() for line in lines]
    names = [*spec.operators, *spec.macros]
    total, done = len(names) + len(lines) + len(spec.axioms), 0

    def next_(what: str) -> None:
        nonlocal done
        if progress is not None:
            progress(what, done, total)
        done += 1

    report = SpecReport()
    for name in names:
        next_(name)
        report.rows.append(conform(spec, name, tries=tries, seed=seed))
    for line in lines:
        next_(import_title(line))
        report.rows.append(conform_import(spec, line, tries=tries, seed=seed))
    report.axioms = check_axioms(spec, progress=next_)
    return report


# --- judging -------------------------------------------------------------------------------------------------------


def judge(found: Conformance, ours: np.ndarray, node: NodeCase, output: int = 0) -> str:
    """Compare our value of a node's output with ONNX's and enter the outcome.

    onnx's reference implementation decides for the newest version of an operator. Older versions it often takes for the
    newest, and some nodes it cannot run or gets wrong: then onnxruntime decides, if it can.
    Gives a reason if the case decides nothing: neither can run the node, or it is not legal ONNX.
    """
    theirs, reference = _by_reference(node, output)
    error = math.inf if theirs is None else difference(ours, theirs)
    current = is_current(node.op_type, node.domain, node.opset)
    if current and error <= TOLERANCE[np.float64]:
        _enter(found, error)
        return ""
    try:
        outputs, precision = run_runtime(node)
    except NotRun as reason:
        if error <= TOLERANCE[np.float64]:
            _enter(found, error)
        elif theirs is None or not legal(node):
            return reference
        else:
            found.failures.append(f"{node}: we give {shown(ours)}, {reference}; {reason}")
        return ""
    error = difference(ours, outputs[output])
    if error > TOLERANCE[precision]:
        given = f"onnxruntime gives {shown(outputs[output])}; {reference}"
        found.failures.append(f"{node}: we give {shown(ours)}, {given}")
        return ""
    _enter(found, error if precision is np.float64 else 0.0)
    if current:
        what = "cannot run some nodes" if theirs is None else "contradicts it"
        found.note(f"{node.op_type}: compared with onnxruntime where onnx's reference implementation {what}")
    return ""


def _by_reference(node: NodeCase, output: int) -> tuple[np.ndarray | None, str]:
    """What the reference implementation gives, and that in words; None and the reason if it gives nothing."""
    try:
        theirs = run_reference(node)[output]
    except NotRun as reason:
        return None, str(reason)
    return theirs, f"onnx's reference implementation gives {shown(theirs)}"


def _enter(found: Conformance, error: float) -> None:
    found.cases += 1
    found.max_error = max(found.max_error, error)


def difference(ours: np.ndarray, theirs: np.ndarray) -> float:
    """The largest |ours - theirs| / (1 + |theirs|); inf where shapes differ, or where only one is nan or infinite."""
    if ours.shape != theirs.shape:
        return float("inf")
    ours, theirs = ours.astype(np.float64), theirs.astype(np.float64)
    finite = np.isfinite(ours) & np.isfinite(theirs)
    if not np.array_equal(ours[~finite], theirs[~finite], equal_nan=True):
        return float("inf")
    return float(np.max(np.abs(ours[finite] - theirs[finite]) / (1 + np.abs(theirs[finite])), initial=0.0))


def shown(array: np.ndarray) -> str:
    """An array for a message: its shape and first few values."""
    values: Any = [float(f"{v:.6g}") for v in np.asarray(array, np.float64).reshape(-1)[:6]]
    return f"{values}{' ...' if array.size > 6 else ''} of shape {list(array.shape)}"
