"""How each rule of the original is read: as it stands, and where that is false, what of it is true."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from bench.original.convert import converted
from bench.original.notation import Node, OriginalRule, read_original
from bench.original.sizes import Misfit
from taso.prove.prover import prove_rule
from taso.spec import syntax as s
from taso.spec.spec import Spec


def variants(path: Path, name: str, spec: Spec) -> Iterator[s.Rule]:
    """The rules of one of the original's files in our language; those that only hold without groups follow as such."""
    for rule in read_original(path):
        claimed = f"; claimed: {rule.truth}" if rule.truth else ""
        found = converted(rule, f"{name}_{rule.number}")
        refuted = prove_rule(found, spec).status == "refuted"
        if refuted and _pools(rule):
            summed = converted(rule, found.name, pool="sum")
            if prove_rule(summed, spec).status == "proved":
                found, refuted = summed, False
        yield replace(found, records=(f"found  TASO, {name} rule {rule.number}{claimed}",))
        if refuted:
            try:
                one = converted(rule, f"{name}_{rule.number}_ungrouped", groups="one")
            except Misfit:
                continue
            if prove_rule(one, spec).status == "proved":
                yield replace(one, records=(f"found  TASO, {name} rule {rule.number}, with one group",))


def _pools(rule: OriginalRule) -> bool:
    def walk(node: Node) -> bool:
        return node.op in ("pool2d_avg", "const_pool_kernel") or any(map(walk, node.args))

    return any(map(walk, (*rule.source, *rule.target)))
