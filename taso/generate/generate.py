"""`taso gen-rules`: universes to equalities, equalities to proved schemas, schemas to a minimal set of rules."""

from __future__ import annotations

import shutil
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from taso.errors import UsageError, did_you_mean
from taso.generate.candidates import Candidate, Equalities, find_candidates
from taso.generate.count import Counts
from taso.generate.directions import directions
from taso.generate.enumerate import MEMORY, enumerate_universe
from taso.generate.executor import Executor, Task, local
from taso.generate.generalise import Failure
from taso.generate.minimise import Derivation
from taso.generate.pool import Outcome, Pool
from taso.generate.universe import World
from taso.hardware.target import load_target
from taso.rules.rule import rule_id
from taso.rules.text import write_rules
from taso.spec import syntax as s
from taso.spec.spec import Spec, load_spec

SEED = 20191027
AHEAD = 2  # proofs for each process that are begun before their turn
LOOK_AHEAD = 64  # candidates for each process that are looked at before their turn
Progress = Callable[[str, int, int], None]  # what is being done, how far, of how many


@dataclass
class Funnel:
    """How many of what at each station of one universe.

    counts: what was enumerated, by number of operators.
    equalities: the stations from equal terms to candidates.
    candidates: the last of them; `directions` are the ways round of these that can be of use.
    derived, refuted, unknown, duplicates, kept: what became of the directions.
    """

    universe: str
    counts: tuple[Counts, ...] = ()
    equalities: Equalities = field(default_factory=Equalities)
    candidates: int = 0
    directions: int = 0
    derived: int = 0
    refuted: int = 0
    unknown: int = 0
    duplicates: int = 0
    kept: int = 0

    @property
    def terms(self) -> int:
        """Graphs with one output that were looked at."""
        return sum(counts.terms for counts in self.counts)

    @property
    def values(self) -> int:
        """Different values that they have."""
        return sum(counts.values for counts in self.counts)

    @property
    def patterns(self) -> int:
        """What the equal ones among them are instances of."""
        return self.equalities.patterns

    @property
    def graphs(self) -> int | None:
        """Graphs that this covers, with any number of outputs and all renamings; None where they are not counted."""
        listed = [counts.graphs for counts in self.counts]
        return None if None in listed else sum(n for n in listed if n is not None)

    def line(self) -> str:
        """All counts in a sentence."""
        covered = "" if self.graphs is None else f"{self.graphs} graphs, "
        return (
            f"{self.universe}: {covered}{self.terms} terms, {self.values} values; {self.equalities};"
            f" {self.candidates} candidates, {self.directions} directions; {self.derived} derived from other rules,"
            f" {self.refuted} refuted, {self.unknown} unknown, {self.duplicates} the same schema,"
            f" {self.kept} rules kept"
        )


@dataclass
class GenerateResult:
    """The rules, what became of everything else, and the files written (none if `out_dir` was None)."""

    rules: list[s.Rule]
    funnels: list[Funnel]
    files: list[Path] = field(default_factory=list)
    unproved: list[str] = field(default_factory=list)


def generate_rules(
    *,
    hw: str = "cpu",
    ops: int = 3,
    universes: Sequence[str] = (),
    spec: Spec | None = None,
    extra: Sequence[Path] = (),
    seed: int = SEED,
    processes: int | None = None,
    ray: str | None = None,
    device: str = "auto",
    memory: int = MEMORY,
    work: Path | None = None,
    progress: Progress | None = None,
    out_dir: Path | None = None,
) -> GenerateResult:
    """Discover, prove and minimise rewrite rules (Jia et al. 2019, section 3, with schemas instead of instances).

    Proofs run in new Python processes, so a script has to call this below `if __name__ == "__main__":`.

    Args:
        hw: the target; only its name is recorded, since the core rules hold everywhere.
        ops: the largest number of operators in a graph; at most what a universe says (`set ops`) that is not named.
        universes: names of universes; all of the specification by default.
        spec: the specification; by default the shipped one with `extra`.
        extra: further specification files (`--spec`).
        processes: how many processes enumerate and prove side by side; the result does not depend on it.
        ray: the address of a Ray cluster where they run instead, or `auto`.
        device: what enumerates: `cpu`, `cuda`, or `auto` for a GPU where there is one.
        memory: bytes that an enumeration may use, about.
        work: a folder for what a run that is stopped can go on with; without one nothing is kept.
        out_dir: where `core.rules` is written; None writes nothing.

    Raises:
        UsageError: an unknown universe or target.
        SpecError: a specification is wrong.
    """
    target = load_target(hw)
    spec = spec or load_spec(tuple(extra))
    names = list(universes) or sorted(spec.universes)
    for name in names:
        if name not in spec.universes:
            hint = did_you_mean(name, spec.universes)
            raise UsageError(f"no universe is called {name!r}; there are {', '.join(sorted(spec.universes))}{hint}")
    result = GenerateResult([], [])
    derivation = Derivation(spec)
    where = Enumerating(ops, seed, device, memory, work)
    with _executor(processes, ray) as executor:
        pool = Pool(spec, executor)
        for name in names:
            depth = ops if name in universes else depth_of(name, spec, ops)
            _take_universe(name, spec, replace(where, ops=depth), derivation, pool, result, progress)
    if out_dir is not None:
        path = out_dir / "core.rules"
        write_rules(path, result.rules, _header(result, target.name, ops, spec, seed))
        result.files.append(path)
    for folder in where.finished:
        shutil.rmtree(folder, ignore_errors=True)
    return result


@dataclass(frozen=True)
class Enumerating:
    """How universes are enumerated."""

    ops: int
    seed: int
    device: str
    memory: int
    work: Path | None
    finished: list[Path] = field(default_factory=list)  # folders that are of no more use when all is written


def default_work() -> Path:
    """Where runs leave what they can go on with: `enumerations` in the user's cache folder."""
    import platformdirs

    return Path(platformdirs.user_cache_path("taso")) / "enumerations"


def _executor(processes: int | None, ray: str | None) -> Executor:
    if ray is None:
        return local(processes)
    from taso.generate.cluster import Cluster

    return Cluster(ray)


def depth_of(name: str, spec: Spec, ops: int) -> int:
    """How many operators are enumerated in a universe if `ops` are asked for: no more than it says is worth while."""
    most = World(spec.universes[name], spec).options.ops
    return ops if most is None else min(ops, most)


def _header(result: GenerateResult, target: str, ops: int, spec: Spec, seed: int) -> list[str]:
    return [
        (
            f"generated by `taso gen-rules --hw {target} --ops {ops}`; spec {spec.hash}, seed {seed};"
            f" {len(result.rules)} rules. Do not edit: regenerate."
        ),
        *(funnel.line() for funnel in result.funnels),
    ]


def _take_universe(
    name: str,
    spec: Spec,
    how: Enumerating,
    derivation: Derivation,
    pool: Pool,
    result: GenerateResult,
    progress: Progress | None,
) -> None:
    """Add the rules of one universe that do not follow from those that are there."""
    enumeration = enumerate_universe(
        spec.universes[name],
        spec,
        how.ops,
        seed=how.seed,
        device=how.device,
        memory=how.memory,
        work=how.work,
        executor=pool.executor,
        progress=progress,
    )
    if enumeration.work is not None:
        how.finished.append(enumeration.work)
    found, equalities = find_candidates(enumeration)
    queue = [direction for candidate in found for direction in directions(candidate, how.ops, spec)]
    funnel = Funnel(name, tuple(enumeration.counts), equalities, len(found), len(queue))
    result.funnels.append(funnel)
    known = {_plain(rule) for rule in result.rules}
    for position, (candidate, task) in enumerate(_in_turn(queue, derivation, pool)):
        if progress is not None:
            progress(name, position, len(queue))
        if task is None:
            funnel.derived += 1
        else:
            _settle(candidate, task.result(), funnel, known, derivation, result)


def _in_turn(queue: Sequence[Candidate], derivation: Derivation, pool: Pool) -> Iterator[tuple[Candidate, Task | None]]:
    """Each candidate with its proof, or None if it follows from the rules that are kept when its turn comes.

    Proofs of later candidates are begun ahead. That is a guess, made with fewer rules, and looked at again if there is
    a new rule since; so what comes out does not depend on how many proofs run side by side.
    """
    ahead: deque[tuple[Candidate, Task | None, int]] = deque()  # with the number of rules of the guess
    proofs = following = 0
    for candidate in queue:
        while following < len(queue) and (
            not ahead or (proofs < AHEAD * pool.processes and len(ahead) < LOOK_AHEAD * pool.processes)
        ):
            later = queue[following]
            guess = None if _derived(later, derivation) else pool.submit(later)
            ahead.append((later, guess, len(derivation.rules)))
            proofs += guess is not None
            following += 1
        _, task, rules = ahead.popleft()
        proofs -= task is not None
        if rules == len(derivation.rules):
            yield candidate, task
        elif _derived(candidate, derivation):
            if task is not None:
                task.cancel()
            yield candidate, None
        else:
            yield candidate, task or pool.submit(candidate)


def _derived(candidate: Candidate, derivation: Derivation) -> bool:
    return derivation.derives(candidate.source, candidate.target, candidate.shapes)


def _settle(
    candidate: Candidate,
    outcome: Outcome,
    funnel: Funnel,
    known: set[s.Rule],
    derivation: Derivation,
    result: GenerateResult,
) -> None:
    """Keep a candidate's schema as a rule, or count why not."""
    if isinstance(outcome, Failure):
        if outcome.status == "refuted":
            funnel.refuted += 1
        else:
            funnel.unknown += 1
            result.unproved.append(f"{funnel.universe}: {candidate}: {outcome.reason}")
        return
    plain = _plain(outcome.rule)
    if plain in known:
        funnel.duplicates += 1
        return
    known.add(plain)
    records = (
        f"proved index-terms, all sizes; {'exact' if outcome.verdict.exact else 'real'}",
        f"found  {funnel.universe} @ {candidate.level} ops",
    )
    named = replace(plain, name=rule_id(plain), records=records)
    funnel.kept += 1
    result.rules.append(named)
    derivation.add(named)


def _plain(rule: s.Rule) -> s.Rule:
    """What a rule says, without its name and records."""
    return replace(rule, name="r", records=())
