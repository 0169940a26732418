"""Numbers for people: at most three significant digits, a unit, and a dash for what was not measured."""

import math
from datetime import datetime

DASH = "–"
MINUS = "−"


def _scaled(value: float, prefixes: tuple[str, ...], unit: str) -> str:
    """`value` with the largest decimal prefix that leaves at least 1 in front of it."""
    for prefix in prefixes[:-1]:
        if abs(value) < 999.5:
            return f"{format_number(value)} {prefix}{unit}"
        value /= 1000
    return f"{format_number(value)} {prefixes[-1]}{unit}"


def format_number(value: float) -> str:
    """Without exponent and trailing zeros, and with three significant digits, or two if it is small: 1.306 -> "1.31",
    10 -> "10", 0.0003712 -> "0.00037". Only 0 is shown as 0, and what rounds to it after twelve digits.
    """
    size = abs(value)
    if 0 < size < 0.095:
        digits = min(1 - math.floor(math.log10(size)), 12)
    else:
        digits = 0 if size >= 99.95 else 1 if size >= 9.995 else 2
    text = f"{value:.{digits}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def format_bytes(num_bytes: float | None) -> str:
    """44_700_000 -> "44.7 MB"; decimal prefixes, as networks and disks are sold."""
    return DASH if num_bytes is None else _scaled(num_bytes, ("", "k", "M", "G", "T", "P", "E"), "B")


def format_flops(flops: float | None) -> str:
    """1.1e12 -> "1.1 TFLOP": a number of operations, not a rate."""
    return DASH if flops is None else _scaled(flops, ("", "k", "M", "G", "T", "P", "E", "Z"), "FLOP")


def format_seconds(seconds: float | None) -> str:
    """0.0314 -> "31.4 ms", 42 -> "42 s", 200 -> "3 min 20 s", 7500 -> "2 h 05 min"."""
    if seconds is None:
        return DASH
    if seconds == 0 or 0.9995 <= seconds < 99.95:
        return f"{format_number(seconds)} s"
    if seconds < 0.9995:
        return f"{format_number(seconds * 1000)} ms"
    whole_s, minutes = round(seconds), round(seconds / 60)
    if whole_s < 3600:
        return f"{whole_s // 60} min {whole_s % 60:02d} s"
    return f"{minutes // 60} h {minutes % 60:02d} min"


def format_percent(share: float | None, digits: int = 2) -> str:
    """0.7412 -> "74.12 %"."""
    return DASH if share is None else f"{100 * share:.{digits}f} %"


def format_budget(share: float) -> str:
    """0.1 -> "10 %", 0.005 -> "0.5 %"."""
    return f"{format_number(100 * share)} %"


def format_trained(share: float, draw: str) -> str:
    """The trained budget and how an epoch draws: "10 %", "10 % (ordered)", "up to 10 % (infobatch)"."""
    text = format_budget(share) if draw == "uniform" else f"{format_budget(share)} ({draw})"
    return f"up to {text}" if draw == "infobatch" else text


def format_points(share: float | None, digits: int = 2) -> str:
    """0.0123 -> "+1.23", -0.5 -> "−50.00": percentage points, always signed, but never minus zero."""
    if share is None:
        return DASH
    text = f"{100 * share:+z.{digits}f}"
    return text.replace("-", MINUS)


def format_interval(share: float, half_width: float | None, digits: int = 2) -> str:
    """(0.0123, 0.0045) -> "+1.23 ± 0.45"; without an interval "+1.23"."""
    points = format_points(share, digits)
    return points if half_width is None else f"{points} ± {100 * half_width:.{digits}f}"


def format_apart(share: float) -> str:
    """0.0641 -> "6.41 points above", -0.5 -> "50.00 points below"."""
    return f"{100 * abs(share):.2f} points {'below' if share < 0 else 'above'}"


def format_multiple(ratio: float | None) -> str:
    """15.42 -> "15.4x"."""
    return DASH if ratio is None else f"{format_number(ratio)}x"


def format_whole(amount: float | None) -> str:
    """6500.0 -> "6,500": a number of steps or images, or a mean of such numbers."""
    return DASH if amount is None else f"{amount:,.0f}"


def format_count(count: int, unit: str) -> str:
    """(1, "epoch") -> "1 epoch", (1200, "epoch") -> "1,200 epochs"."""
    return f"{count:,} {unit}" if count == 1 else f"{count:,} {unit}s"


def format_moment(moment: str) -> str:
    """2026-11-23T04:33:55+00:00 -> "23 November 2026, 04:33 UTC"."""
    parsed = datetime.fromisoformat(moment)
    return f"{parsed.day} {parsed:%B %Y, %H:%M} {parsed.tzname() or ''}".rstrip()
