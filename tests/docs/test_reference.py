"""The generated pages are those of the code."""

from __future__ import annotations

from types import ModuleType

import pytest

from docs.generate.__main__ import GENERATORS


@pytest.mark.parametrize("generator", GENERATORS, ids=lambda generator: generator.PAGE.stem)
def test_a_generated_page_is_that_of_the_code(generator: ModuleType) -> None:
    page = generator.PAGE.read_text(encoding="utf-8")
    assert generator.text() == page, f"{generator.PAGE.name} is out of date: run `make reference`, commit it"
