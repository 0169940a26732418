"""Quantities as Kubernetes reads them."""

from __future__ import annotations

import pytest
from kubernetes.utils.quantity import parse_quantity

from lipt.adapters.cluster.values import amount


@pytest.mark.parametrize("text", ["2", "500m", "2Gi", "8G", "1.5", ".5", "1e3", "5E-1", "1E", "10k", "3Ki", "7u", "9n"])
def test_a_quantity_is_the_number_that_the_client_library_reads(text: str) -> None:
    assert amount(text) == pytest.approx(float(parse_quantity(text)))


@pytest.mark.parametrize("text", ["", "8GB", "2gi", "1 Gi", "-1", "1e", "1e999", "four", "٤"])
def test_other_text_is_none(text: str) -> None:
    with pytest.raises(ValueError, match="is no quantity"):
        amount(text)
