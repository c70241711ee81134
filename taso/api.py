"""Public functions that put several parts together: proving a rule, comparing and timing two models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from taso.errors import SpecError, UsageError

if TYPE_CHECKING:
    import onnx

    from taso.hardware.target import Target
    from taso.hardware.timing import Comparison, Timing
    from taso.onnxio.verify import VerifyResult
    from taso.prove.prover import Verdict
    from taso.spec import syntax as s
    from taso.spec.spec import Spec

    Model = str | Path | bytes | onnx.ModelProto


def prove(rule: str | s.Rule, *, spec: Sequence[str | Path] = ()) -> Verdict:
    """Prove a rewrite rule for all sizes and attribute values, or refute it with a counterexample.

    Args:
        rule: `left ==> right`, a whole `rule NAME ...`, or a rule that was read from a file.
        spec: further specification files (`*.op`), beside the shipped ones.

    Returns:
        A verdict: `status` is "proved", "refuted" (with `counterexample`) or "unknown"; `conditions` are what the rule
        needs beyond its `where`; `ranks` says for which ranks it was proved.

    Raises:
        SpecError: the rule is not well-formed; names line and column.
    """
    from taso.prove.prover import prove_rule
    from taso.spec.spec import load_spec

    known = load_spec(tuple(Path(path) for path in spec))
    return prove_text(rule, known) if isinstance(rule, str) else prove_rule(rule, known)


def prove_text(text: str, spec: Spec) -> Verdict:
    """Prove a rule that somebody typed; errors show the text as it was typed. Raises SpecError."""
    from taso.prove.prover import prove_rule
    from taso.spec.parse import parse_rule

    body = text.strip()
    added = 0 if body.startswith("rule ") else len("rule r ")  # what the parser puts in front of a nameless rule
    try:
        return prove_rule(parse_rule(body, "<rule>"), spec)
    except SpecError as error:
        column = max(error.column - added, 0) if error.line <= 1 else error.column
        raise SpecError(
            error.problem, path="<rule>", line=error.line, column=column, source=body, hint=error.hint
        ) from error


def verify(
    original: Model,
    candidate: Model,
    *,
    input_shapes: Mapping[str, Sequence[int]] | None = None,
    check: int = 3,
    seed: int = 0,
    rtol: float | None = None,
    atol: float | None = None,
) -> VerifyResult:
    """Run two models on `check` sets of random inputs and compare every output.

    Args:
        input_shapes: shapes of inputs with free dims, by input name; others get usual sizes.
        rtol, atol: tolerances; by default those of each output's dtype (docs/numerics.md).

    Returns:
        `ok`, the worst difference of each output, and which outputs are not deterministic.

    Raises:
        ModelError: a model cannot be read or is not valid.
        UsageError: an input name or shape that the original does not have.
        MeasureError: the original does not run.
    """
    from taso.hardware.runtime import Worker
    from taso.onnxio import verify as compared
    from taso.onnxio.load import default_sizes, load_model

    model = load_model(original)
    load_model(candidate)  # says what is wrong with it before anything runs
    shapes = default_sizes(model, input_shapes)
    with Worker() as worker:
        sets = compared.input_sets(model, shapes, check, seed, worker)
        sides = _runnable(original), _runnable(candidate)
        return compared.verify(*sides, input_sets=sets, worker=worker, rtol=rtol, atol=atol)


def time_models(
    models: Sequence[Path],
    *,
    target: Target,
    input_shapes: Mapping[str, Sequence[int]] | None = None,
    threads: int | None = None,
    runs: int = 1000,
    time_budget: float = 10.0,
    seed: int = 0,
) -> tuple[list[Timing], Comparison | None]:
    """Time one or two models, interleaved, on random inputs of the first; with two, also compare them.

    `threads` are all CPUs by default, `time_budget` is in seconds. Raises as `verify` does, and UsageError for a target
    that is not attached or models that do not take the same inputs.
    """
    from taso.hardware.runtime import Worker, available_threads
    from taso.hardware.target import attached
    from taso.hardware.timing import compare, interleaved
    from taso.onnxio.load import check_shapes, default_sizes, load_model, required_inputs
    from taso.onnxio.verify import input_sets

    if not attached(target):
        raise UsageError(f"{target.name} is not attached to this machine (or its runtime is not installed)")
    loaded = [load_model(path) for path in models]
    shapes = default_sizes(loaded[0], input_shapes)
    for path, model in zip(models[1:], loaded[1:]):
        needed = [info.name for info in required_inputs(model)]
        given = {info.name for info in loaded[0].graph.input}
        if not given.issuperset(needed):
            lacking = next(name for name in needed if name not in given)
            raise UsageError(f'{path} needs the input "{lacking}", which {models[0]} does not have')
        try:
            check_shapes(model, {name: shapes[name] for name in needed if name in shapes and 0 not in shapes[name]})
        except UsageError as error:
            raise UsageError(f"{models[0]} and {path} do not take the same inputs: {error}") from error
    count = threads or available_threads()
    with Worker(threads=count, provider=target.provider) as worker:
        inputs = input_sets(loaded[0], shapes, 1, seed, worker)[0]
        timings = interleaved(
            [(path.name if len({p.name for p in models}) == len(models) else str(path), path) for path in models],
            inputs,
            threads=count,
            runs=runs,
            time_budget_s=time_budget,
            null=len(models) > 1,
            seed=seed,
            worker=worker,
        )
    if len(models) == 1:
        return timings, None
    before, after, null = timings
    return [before, after], compare(before, after, null)


def _runnable(model: Model) -> bytes | Path:
    """A model as the runtime takes it: a file by its path, since its tensors may lie beside it."""
    if isinstance(model, bytes):
        return model
    return Path(model) if isinstance(model, (str, Path)) else model.SerializeToString()
