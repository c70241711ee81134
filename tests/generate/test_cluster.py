"""A Ray cluster of two workers finds the same as one process, also if a worker is killed half-way."""

from __future__ import annotations

import os
import signal
from functools import partial
from pathlib import Path

import pytest

from taso.errors import ShapeError, UsageError
from taso.generate import enumerate as enumeration
from taso.generate.cluster import Cluster
from taso.generate.enumerate import Work, enumerate_universe, hash_shard
from taso.generate.generate import generate_rules
from taso.generate.level import Part, Shard
from tests.generate.test_executor import same
from tests.generate.test_generate import spec_with
from tests.generate.universes import IMAGES, MATRICES, SPEC, universe

ray = pytest.importorskip("ray")


def dying_once(marker: Path, work: Work, shard: Shard) -> tuple[list[Part], float]:
    """Hash a shard; one worker is killed at the eleventh."""
    with (marker / "count").open("a") as file:
        file.write(".")
        count = file.tell()
    if count > 10 and not (marker / "died").exists():
        (marker / "died").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return hash_shard(work, shard)


def refusing(shared: object, text: str) -> None:
    """Raise an error of ours."""
    raise ShapeError(f"{shared} {text}")


def test_a_cluster_that_loses_a_worker_finds_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(enumeration, "SIDE_BY_SIDE", 100)
    monkeypatch.setattr(enumeration, "hash_shard", partial(dying_once, tmp_path))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(Path.cwd()), os.environ.get("PYTHONPATH", "")]))
    with Cluster("local") as cluster:
        with pytest.raises(ShapeError, match="seven times"):
            cluster.submit(refusing, cluster.share("seven"), "times").result()
        found = enumerate_universe(universe(IMAGES), SPEC, 3, executor=cluster)
    assert (tmp_path / "died").exists()
    assert same(found, enumerate_universe(universe(IMAGES), SPEC, 3))


def test_rules_from_a_cluster_are_the_same_bytes(tmp_path: Path) -> None:
    for ray_address, folder in (("local", tmp_path / "ray"), (None, tmp_path / "here")):
        folder.mkdir()
        generate_rules(spec=spec_with(MATRICES), ops=2, ray=ray_address, processes=1, out_dir=folder)
    assert (tmp_path / "ray" / "core.rules").read_bytes() == (tmp_path / "here" / "core.rules").read_bytes()


def test_no_cluster_is_said() -> None:
    with pytest.raises(UsageError, match=r"--ray auto: no Ray cluster can be reached there"):
        Cluster("auto")
