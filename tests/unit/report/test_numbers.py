"""Numbers for people."""

import pytest

from lipt.report.numbers import (
    format_budget,
    format_bytes,
    format_count,
    format_flops,
    format_multiple,
    format_number,
    format_percent,
    format_points,
    format_seconds,
    format_whole,
)


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        (format_bytes(0), "0 B"),
        (format_bytes(999), "999 B"),
        (format_bytes(999_600), "1 MB"),
        (format_bytes(44_732_168), "44.7 MB"),
        (format_bytes(3e18), "3 EB"),
        (format_bytes(None), "–"),
        (format_flops(1.11e15), "1.11 PFLOP"),
        (format_number(0), "0"),
        (format_number(0.0003712), "0.00037"),
        (format_number(1.04e-7), "0.0000001"),
        (format_number(0.0999), "0.1"),
        (format_number(5.456), "5.46"),
        (format_seconds(0), "0 s"),
        (format_seconds(0.0314), "31.4 ms"),
        (format_seconds(0.9999), "1 s"),
        (format_seconds(59.96), "60 s"),
        (format_seconds(99.97), "1 min 40 s"),
        (format_seconds(284.2), "4 min 44 s"),
        (format_seconds(3599.9), "1 h 00 min"),
        (format_seconds(7199), "2 h 00 min"),
        (format_seconds(7500), "2 h 05 min"),
        (format_percent(0.7412), "74.12 %"),
        (format_budget(0.005), "0.5 %"),
        (format_budget(1), "100 %"),
        (format_budget(0.00003), "0.003 %"),
        (format_points(-0.0123), "−1.23"),
        (format_points(0.0), "+0.00"),
        (format_points(-0.00001), "+0.00"),
        (format_multiple(15.42), "15.4x"),
        (format_multiple(0.00123), "0.0012x"),
        (format_multiple(1e-30), "0x"),
        (format_whole(6500.0), "6,500"),
        (format_whole(None), "–"),
        (format_count(1, "epoch"), "1 epoch"),
        (format_count(1200, "epoch"), "1,200 epochs"),
    ],
)
def test_numbers_for_people(shown, expected):
    assert shown == expected
