"""What an optimization gives back: the model, and a report of everything that happened to it."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import onnx


@dataclass(frozen=True)
class AppliedRule:
    """A rule that helped to make the result.

    gain_us: what its applications saved by the latencies of single kernels, estimated; steps up count as negative.
    proof:   its `proved` record.
    """

    name: str
    times: int
    gain_us: float
    text: str
    proof: str


@dataclass(frozen=True)
class Latency:
    """A measured latency: the median over `runs`, and half the interquartile range, in milliseconds.

    level: onnxruntime's optimisation level that the model ran at; `full` unless that failed.
    """

    median_ms: float
    spread_ms: float
    runs: int
    level: str


@dataclass
class Report:
    """What was done, what came of it and how it was measured.

    improved:           whether `.model` is a new model; `reason` says why not, or by how much.
    latency_*:          measured end to end, interleaved; None where nothing was measured.
    speedup:            before / after, the median over paired runs, with its 95 % bounds, of the best candidate.
    null_speedup:       the original against a second session of itself: what noise looks like.
    estimated_*_us:     the sum of the latencies of single kernels.
    largest_difference: the largest error of any output over `checked` random inputs, in units of that output's scale.
    rtol, atol:         the tolerances asked for; None are those of each element type.
    understood:         the share of the estimated latency that is spent in operators of the specification.
    source:             where kernel latencies come from: measured, imported or estimated.
    """

    improved: bool = False
    reason: str = ""
    nodes_before: int = 0
    nodes_after: int = 0
    operators_before: dict[str, int] = field(default_factory=dict)
    operators_after: dict[str, int] = field(default_factory=dict)
    size_before: int = 0
    size_after: int = 0
    latency_before: Latency | None = None
    latency_after: Latency | None = None
    speedup: float = 1.0
    speedup_low: float = 1.0
    speedup_high: float = 1.0
    null_speedup: float = 1.0
    estimated_before_us: float = 0.0
    estimated_after_us: float = 0.0
    rules: list[AppliedRule] = field(default_factory=list)
    largest_difference: float = 0.0
    checked: int = 0
    rtol: float | None = None
    atol: float | None = None
    graphs: int = 0
    search_seconds: float = 0.0
    total_seconds: float = 0.0
    kernels: int = 0
    kernels_known: int = 0
    rules_available: int = 0
    understood: float = 1.0
    source: str = "measured"
    target: str = ""
    device: str = ""
    runtime: str = ""
    threads: int = 1
    opset: int = 0
    notes: list[str] = field(default_factory=list)

    @property
    def latency_before_ms(self) -> float | None:
        """The median latency of the original, milliseconds."""
        return None if self.latency_before is None else self.latency_before.median_ms

    @property
    def latency_after_ms(self) -> float | None:
        """The median latency of the new model, milliseconds."""
        return None if self.latency_after is None else self.latency_after.median_ms

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain data for JSON."""
        return {**asdict(self), "latency_before_ms": self.latency_before_ms, "latency_after_ms": self.latency_after_ms}


@dataclass(frozen=True)
class Result:
    """An optimized model and the report; where nothing was improved, the model is the original, unchanged."""

    model: onnx.ModelProto
    report: Report


def operator_counts(model: onnx.ModelProto) -> dict[str, int]:
    """How many nodes of each operator a model has in its main graph, the most frequent first."""
    counts = Counter(node.op_type for node in model.graph.node)
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))
