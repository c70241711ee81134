"""One runtime process for all tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from taso.hardware.runtime import Worker


@pytest.fixture(scope="session")
def worker() -> Iterator[Worker]:
    """A runtime process with one thread."""
    with Worker(threads=1) as process:
        yield process
