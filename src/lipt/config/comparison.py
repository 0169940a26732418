"""The settings of a comparison."""

from typing import Any

from pydantic import Field, NonNegativeInt, field_validator

from lipt.config.base import Section


class Compare(Section):
    """The seeds and variants of `lipt compare`."""

    seeds: list[NonNegativeInt] = Field(default_factory=lambda: [0, 1, 2], min_length=1)
    """Seeds of the runs; each variant runs once per seed."""
    variants: list[str] = Field(default_factory=list)
    """Names of the variants to run, as docs/reference/settings.md lists them; empty: all."""

    @field_validator("seeds", "variants")
    @classmethod
    def _each_once(cls, values: list[Any]) -> list[Any]:
        twice = [value for number, value in enumerate(values) if value in values[:number]]
        if twice:
            raise ValueError(f"{twice[0]} is named twice")
        return values
