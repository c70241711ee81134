"""The shipped universes."""

from __future__ import annotations

import pytest

from taso.generate.candidates import candidates
from taso.generate.enumerate import enumerate_universe
from taso.generate.universe import World
from taso.spec.spec import load_spec

SPEC = load_spec()


@pytest.mark.parametrize("name", sorted(SPEC.universes))
def test_every_instance_applies_somewhere(name: str) -> None:
    found = enumerate_universe(SPEC.universes[name], SPEC, 2, keep_last=True)
    used = {found.world.instances[k].name for k in (*found.table.instance, *found.found.instance) if k >= 0}
    assert used == {instance.name for instance in found.world.instances}


@pytest.mark.parametrize("name", ["affine", "piecewise", "elementwise"])
def test_every_universe_gives_candidates(name: str) -> None:
    found = candidates(enumerate_universe(SPEC.universes[name], SPEC, 2))
    assert any(sum(candidate.cost) >= 3 for candidate in found)


def test_the_universe_of_taso_is_complete() -> None:
    world = World(SPEC.universes["taso"], SPEC)
    inputs = [leaf for leaf in world.leaves if leaf.group >= 0]
    assert len(inputs) == 20
    assert len(world.leaves) == 24  # and four constants
    names = {instance.name for instance in world.instances}
    assert {"matmul", "add", "mul", "scale", "relu", "average", "maximum", "enlarge", "transpose"} <= names
    assert {f"{kind}{relu}" for kind in ("conv3x3", "conv1x3") for relu in ("", "_relu")} <= names


def test_counts_of_the_universe_of_taso() -> None:
    """As many terms as an independent trial counted, up to what differs: which tensors can be split."""
    found = enumerate_universe(SPEC.universes["taso"], SPEC, 3)
    one, two, three = (counts.named for counts in found.counts)
    assert abs(one - 467) < 80 and abs(two - 16_339) < 0.06 * 16_339
    assert abs(three - 724_267) < 0.06 * 724_267
