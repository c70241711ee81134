"""Figures as people write them."""

from __future__ import annotations

import math


def latency(us: float, spread_us: float | None = None) -> str:
    """Microseconds as `9.3 us`, `92.2 ms` or `1.35 s`, with the spread in the same unit: `92.2 ms ± 0.9`."""
    if not math.isfinite(us):
        return "unknown"
    unit, scale = ("s", 1e6) if abs(us) >= 1e6 else ("ms", 1e3) if abs(us) >= 1e3 else ("us", 1.0)
    text = f"{three_digits(us / scale)} {unit}"
    if spread_us is None:
        return text
    spread = spread_us / scale
    places = 0 if spread >= 10 else max(1, len(text.split()[0].partition(".")[2]))
    return f"{text} ± {spread:.{places}f}"


def three_digits(value: float) -> str:
    """`9.31`, `92.2`, `922`: three digits that matter, never an exponent for ordinary figures."""
    size = abs(value)
    return f"{value:.2f}" if size < 9.995 else f"{value:.1f}" if size < 99.95 else f"{value:,.0f}"


def size(count: float) -> str:
    """Bytes as `812 B`, `4.7 MB`; powers of ten."""
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= scale * 0.9995:
            return f"{three_digits(count / scale)} {unit}"
    return f"{count:.0f} B"


def times(ratio: float) -> str:
    """A ratio as `1.31x`, and close to 1 as `1.048x`."""
    close = 0.9 < ratio < 1.1 and ratio != 1
    return f"{ratio:.3f}x" if close else f"{ratio:.2f}x" if ratio < 99.995 else f"{ratio:,.0f}x"


def counted(count: int, noun: str) -> str:
    """`1 rule`, `2 rules`, `1,204 rules`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def duration(seconds: float) -> str:
    """`31 ms`, `4.2 s`, `3 min 20 s`."""
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    return f"{int(seconds) // 60} min {int(seconds) % 60} s"
