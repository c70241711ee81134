"""The main job: a model in, a model that computes the same and was measured to be faster out."""

from __future__ import annotations

import math
import tempfile
import time
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from taso.errors import CheckError, ExportError, MeasureError, ModelError, ShapeError
from taso.graph.graph import Arena
from taso.hardware.latency import LatencyModel
from taso.hardware.runtime import Worker, available_threads, runtime_version
from taso.hardware.store import Store
from taso.hardware.target import Target, attached, detect_target, device_name, load_target
from taso.hardware.timing import Timing, compare, faster_beyond_noise, interleaved
from taso.onnxio.context import Imported
from taso.onnxio.export import export_model
from taso.onnxio.import_ import import_model
from taso.onnxio.kernel import kernel
from taso.onnxio.load import Model, ModelWarning, default_sizes, load_model, save_model, stored_bytes
from taso.onnxio.tile import Tiler
from taso.onnxio.verify import VerifyResult, input_sets, verify
from taso.result import AppliedRule, Latency, Report, Result, operator_counts
from taso.rules.rule import RuleSet, load_rules
from taso.rules.text import format_rule
from taso.search.backtrack import Candidate, Limits, Search, Steps
from taso.search.cost import Costs, KernelCost
from taso.search.rewrite import RuleIndex
from taso.spec.spec import load_spec

if TYPE_CHECKING:
    import onnx

__all__ = ["AppliedRule", "Latency", "Report", "Result", "optimize"]

FEW = 3  # candidates that are exported, checked and timed
TIMING_SECONDS = 10.0
LEAST_GROWTH = 100_000  # bytes that a file may always grow by
MESSAGE_BYTES = 1_500_000_000  # models above this travel to the runtime as files

# Called as progress(what, done, total, note); done and total may be None.
Progress = Callable[..., None]


def optimize(
    model: Model,
    *,
    hw: str = "auto",
    input_shapes: Mapping[str, Sequence[int]] | None = None,
    threads: int | None = None,
    alpha: float = 1.05,
    budget: int = 1000,
    time_budget: float | None = None,
    exact: bool = False,
    max_growth: float = 0.1,
    seed: int = 0,
    check: int = 3,
    rtol: float | None = None,
    atol: float | None = None,
    rules: Iterable[str | Path] | None = None,
    only_rules: Collection[str] = (),
    skip_rules: Collection[str] = (),
    min_speedup: float = 1.01,
    spec: Sequence[str | Path] = (),
    progress: Progress | None = None,
) -> Result:
    """Make a model faster without changing what it computes.

    Args:
        model: a path, the bytes of a model, or a ModelProto, which is not changed.
        hw: the hardware target, or "auto" for this machine.
        input_shapes: shapes of inputs with free dimensions, for measuring; the result keeps the dimensions free.
        threads: of the runtime; by default all that this process may use.
        alpha, budget, time_budget: how far to search (`taso.search.backtrack.Limits`); seconds for the time budget.
        exact: use only rules that move data, so that nothing is rounded differently.
        max_growth: by what part of its size the model may grow (100 kB are always allowed).
        check: on how many random inputs the result is compared with the original; rtol, atol: the tolerances.
        rules: rules files or folders instead of the shipped ones; only_rules, skip_rules: names of rules.
        min_speedup: a smaller measured speedup counts as none.
        spec: specification files beside the shipped ones.
        progress: called with what is being done, how much of it is done, the total, and a note.

    Returns:
        The faster model and a report; the original model where none was found that is faster beyond noise.

    Raises:
        ModelError: the model cannot be read, is not valid, or does not run.
        UsageError: no such target, rule, input name or fitting shape.
        SpecError: a specification or rules file is wrong.
        CheckError: candidates were found and every one of them computes something else.
    """
    began = time.monotonic()
    known = load_spec(tuple(map(Path, spec)))
    chosen = load_rules(None if not rules else map(Path, rules)).select(only_rules, skip_rules, exact=exact)
    target = detect_target() if hw == "auto" else load_target(hw)
    report = Report(rtol=rtol, atol=atol, target=target.name, device=device_name(target), runtime=runtime_version())
    with _noting(report):
        source = load_model(model)
    shapes = default_sizes(source, input_shapes)
    report.threads = threads or available_threads()
    show = progress or (lambda *_: None)

    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="taso-")))
        worker = stack.enter_context(Worker(threads=report.threads))
        job = _Job(source, target, shapes, worker, folder, report, show)
        job.inputs = _inputs(job, check, seed)
        imported = import_model(source, Arena(known), shapes, worker=worker)
        limits = Limits(alpha, budget, math.inf if time_budget is None else began + time_budget)
        found = job.search(imported, chosen, limits, max_growth)
        checked = job.checked(job.exported(found, imported, max_growth), rtol, atol)
        result = job.fastest(checked, chosen, min_speedup, seed)
    report.total_seconds = time.monotonic() - began
    return result


@dataclass
class _Checked:
    """A candidate as a model that has passed the numerical check."""

    candidate: Candidate
    model: onnx.ModelProto
    verdict: VerifyResult


@dataclass
class _Job:
    """One optimization: the model, where it runs, and the report that fills up on the way."""

    source: onnx.ModelProto
    target: Target
    shapes: Mapping[str, tuple[int, ...]]
    worker: Worker
    folder: Path
    report: Report
    show: Progress
    inputs: list[dict[str, object]] = field(default_factory=list)
    unwritten: int = 0  # cheaper graphs that could not be written
    tiler: Tiler | None = None

    def search(self, imported: Imported, rules: RuleSet, limits: Limits, max_growth: float) -> list[Candidate]:
        """The best few graphs, the cheapest first; none if nothing cheaper was found."""
        began = time.monotonic()
        context, arena = imported.context, imported.context.arena
        self.tiler = Tiler(context, arena)
        index = RuleIndex([entry.rule for entry in rules], arena.spec)
        with Store() as store:
            latency = LatencyModel(self.target, self.report.threads, store, self._measuring)
            kernels = KernelCost(self.tiler, lambda tile: kernel(tile, context, context.sizes), latency)
            costs = Costs(kernels, context.sizes)
            start = costs.graph(imported.graph)
            room = max(LEAST_GROWTH, max_growth * stored_bytes(self.source))
            bounds = Limits(limits.alpha, limits.budget, limits.deadline, start.constant_bytes + room)
            search = Search(index, costs, arena, bounds, self._searching)
            found = list(search.run(imported.graph))
            self.report.kernels, self.report.source = len(kernels.kernels), latency.source
            self.report.kernels_known = len(kernels.kernels) - len(latency.measured)
            self.report.understood = _understood(costs, imported)
            self.report.notes += _unpriced(costs, imported)
        self.report.estimated_before_us = self.report.estimated_after_us = start.latency
        self.report.graphs, self.report.rules_available = search.visited, len(rules)
        self.report.search_seconds = time.monotonic() - began
        return _best_few(found)

    def exported(
        self, found: Iterable[Candidate], imported: Imported, max_growth: float
    ) -> Iterator[tuple[Candidate, onnx.ModelProto]]:
        """Candidates as models; those that this opset cannot write are left out."""
        assert self.tiler is not None
        for candidate in found:
            try:
                yield candidate, export_model(candidate.graph, imported.context, self.tiler, max_growth=max_growth)
            except (ExportError, ShapeError) as error:
                self.unwritten += 1
                self.report.notes.append(f"a cheaper graph could not be written: {error}")

    def checked(
        self, models: Iterable[tuple[Candidate, onnx.ModelProto]], rtol: float | None, atol: float | None
    ) -> list[_Checked]:
        """The candidates that compute what the original computes. Raises CheckError if there are some, all wrong."""
        passed: list[_Checked] = []
        wrong: list[str] = []
        original = self._runnable(self.source, "original")
        for number, (candidate, model) in enumerate(models):
            self.show("checking", number, None, "")
            self.report.checked = len(self.inputs)
            written = self._runnable(model, f"candidate{number}")
            verdict = verify(original, written, input_sets=self.inputs, worker=self.worker, rtol=rtol, atol=atol)
            if verdict.ok:
                passed.append(_Checked(candidate, model, verdict))
            else:
                wrong.append(_wrong(verdict))
        if wrong and not passed:
            raise CheckError(f"the optimized model does not compute what the original computes: {wrong[0]}")
        self.report.notes += [f"a candidate was dropped by the numerical check: {one}" for one in wrong]
        return passed

    def fastest(self, checked: Sequence[_Checked], rules: RuleSet, min_speedup: float, seed: int) -> Result:
        """The candidate that is measured to be the fastest, or the original."""
        self._original_figures()
        if not attached(self.target):
            return self._by_estimate(checked, rules)
        timings = self._timed(checked, seed)
        before, after, null = timings[0], timings[1:-1], timings[-1]
        self.report.latency_before = self.report.latency_after = _latency(before)
        quiet = compare(before, null, null)
        self.report.null_speedup = quiet.null
        if not checked:
            self.report.reason = self._why_none()
            return Result(self.source, self.report)
        pairs = [(compare(before, one, null), one, item) for one, item in zip(after, checked)]
        comparison, timing, item = max(pairs, key=lambda pair: pair[0].speedup)
        self.report.speedup, self.report.speedup_low = comparison.speedup, comparison.low
        self.report.speedup_high, self.report.latency_after = comparison.high, _latency(timing)
        if not faster_beyond_noise(comparison, min_speedup):
            self.report.reason = (
                f"the best candidate measured {comparison.speedup:.3f}x "
                f"(95 %: {comparison.low:.3f} to {comparison.high:.3f}), which is not faster beyond noise"
            )
            return Result(self.source, self.report)
        self._accept(item, rules)
        self.report.reason = f"measured {comparison.speedup:.2f}x"
        return Result(item.model, self.report)

    # --- pieces

    def _why_none(self) -> str:
        return "cheaper graphs could not be written" if self.unwritten else "no cheaper graph was found"

    def _by_estimate(self, checked: Sequence[_Checked], rules: RuleSet) -> Result:
        """For a device that is not here: the cheapest by estimate, and a note that says so."""
        self.report.notes.append(f"{self.target.name} is not attached: latencies are {self.report.source}")
        if not checked:
            self.report.reason = self._why_none()
            return Result(self.source, self.report)
        self._accept(checked[0], rules)
        self.report.speedup = self.report.estimated_before_us / self.report.estimated_after_us
        self.report.reason = f"estimated {self.report.speedup:.2f}x"
        return Result(checked[0].model, self.report)

    def _accept(self, item: _Checked, rules: RuleSet) -> None:
        report, worst = self.report, item.verdict.worst
        report.improved = True
        report.nodes_after, report.operators_after = len(item.model.graph.node), operator_counts(item.model)
        report.size_after = _size(item.model)
        report.estimated_after_us = item.candidate.cost.latency
        report.rules = _applied(item.candidate.steps, rules)
        report.largest_difference = 0.0 if worst is None else worst.max_rel
        if item.verdict.nondeterministic:
            names = ", ".join(item.verdict.nondeterministic)
            report.notes.append(f"outputs that differ from run to run were compared by type and shape only: {names}")
        if item.verdict.candidate_level != "full":
            report.notes.append(f"onnxruntime runs the result only at its level `{item.verdict.candidate_level}`")

    def _original_figures(self) -> None:
        report = self.report
        report.nodes_before = report.nodes_after = len(self.source.graph.node)
        report.operators_before = report.operators_after = operator_counts(self.source)
        report.size_before = report.size_after = _size(self.source)
        report.opset = next((one.version for one in self.source.opset_import if one.domain in ("", "ai.onnx")), 0)

    def _timed(self, checked: Sequence[_Checked], seed: int) -> list[Timing]:
        """The original, the candidates and the original again, interleaved."""
        models = [("before", self._runnable(self.source, "original"))]
        models += [(f"after {k}", self._runnable(one.model, f"candidate{k}")) for k, one in enumerate(checked)]
        self.show("timing", None, None, "")
        seconds = TIMING_SECONDS if checked else TIMING_SECONDS / 5
        return interleaved(
            models,
            self.inputs[0],
            threads=self.report.threads,
            time_budget_s=seconds,
            null=True,
            seed=seed,
            provider=self.target.provider,
        )

    def _runnable(self, model: onnx.ModelProto, name: str) -> bytes | Path:
        """The model as the runtime takes it: bytes, or a file where it is too large for that."""
        if stored_bytes(model) < MESSAGE_BYTES:
            return bytes(model.SerializeToString())
        path = self.folder / f"{name}.onnx"
        if not path.exists():
            save_model(model, path)
        return path

    def _measuring(self, done: int, total: int, known: int) -> None:
        self.show("measuring kernels", done, total, f"{known} known" if known else "")

    def _searching(self, graphs: int, best_us: float) -> None:
        self.show("searching", graphs, None, f"best {best_us / 1000:.3g} ms (estimated)")


def _inputs(job: _Job, count: int, seed: int) -> list[dict[str, object]]:
    """Random inputs on which the model runs. Raises ModelError if it runs at no level, or on none."""
    try:
        return input_sets(job.source, job.shapes, count, seed, job.worker)
    except MeasureError as error:
        raise ModelError(f"the model does not run: {error}") from error


def _best_few(found: Sequence[Candidate]) -> list[Candidate]:
    """The cheapest graph and some on the way to it, should that one turn out not to be the fastest."""
    if not found:
        return []
    places = {len(found) - 1, (len(found) - 1) // 2, 0}
    return [found[k] for k in sorted(places, reverse=True)][:FEW]


def _applied(steps: Steps, rules: RuleSet) -> list[AppliedRule]:
    """The rules of some steps, the one with the largest gain first."""
    times: dict[str, int] = {}
    gains: dict[str, float] = {}
    for step in steps:
        times[step.rule] = times.get(step.rule, 0) + 1
        gains[step.rule] = gains.get(step.rule, 0.0) + step.gain
    order = sorted(times, key=lambda name: (-gains[name], name))
    return [
        AppliedRule(name, times[name], gains[name], format_rule(rules[name].rule), rules[name].proof) for name in order
    ]


def _understood(costs: Costs, imported: Imported) -> float:
    """The share of the original's estimated latency that is in operators of the specification."""
    tiles = costs.cover(imported.graph.outputs).tiles
    prices = costs.model.prices(tiles)
    opaque = sum(price for tile, price in zip(tiles, prices) if getattr(tile, "opaque", None) is not None)
    return 1.0 - opaque / sum(prices) if sum(prices) > 0 else 1.0


def _unpriced(costs: Costs, imported: Imported) -> list[str]:
    """A note if nodes of the original are missing from its estimated latency."""
    tiles = costs.cover(imported.graph.outputs).tiles
    missing = sum(price <= 0 for price in costs.model.prices(tiles))
    if not missing:
        return []
    return [
        (
            f"{missing} of {len(tiles)} nodes are missing from the estimated latencies: "
            "their sizes are only known when the model runs, or they do not run alone"
        )
    ]


def _latency(timing: Timing) -> Latency:
    return Latency(timing.median_us / 1000, timing.spread_us / 1000, len(timing.samples_us), timing.level)


def _size(model: onnx.ModelProto) -> int:
    stored = stored_bytes(model)
    return model.ByteSize() if stored < MESSAGE_BYTES else stored


def _wrong(verdict: VerifyResult) -> str:
    worst = verdict.worst
    if verdict.problem or worst is None:
        return verdict.problem or "no output could be compared"
    if worst.problem:
        return f"output {worst.name}: {worst.problem}"
    return f"output {worst.name} differs by {worst.max_abs:.2e} of {worst.scale:.3g} at {list(worst.where)}"


@contextmanager
def _noting(report: Report) -> Iterator[None]:
    """Turn warnings about the model into notes of the report."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ModelWarning)
        yield
    report.notes += [str(one.message) for one in caught if issubclass(one.category, ModelWarning)]
