"""The base of all sections of the configuration."""

from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationInfo, field_validator


class Section(BaseModel):
    """Base of all sections: unknown keys are errors, numbers are finite, instances do not change."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True, allow_inf_nan=False)

    @field_validator("*", mode="before")
    @classmethod
    def _is_plain(cls, value: Any, info: ValidationInfo) -> Any:
        """Refuses true and false as numbers, and text that cannot be printed."""
        wants = cls.model_fields[str(info.field_name)].annotation
        for part in value if isinstance(value, list) else [value]:
            if isinstance(part, bool) and wants is not bool:
                raise ValueError(f"{str(part).lower()} is neither a number nor a text")
            if isinstance(part, str) and not part.isprintable():
                raise ValueError(f"{part[:60]!r} contains a character that cannot be printed")
        return value
