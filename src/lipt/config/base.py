"""The base of all sections of the configuration."""

import os
import re
from typing import Annotated, Any, Self, get_args

from pydantic import AfterValidator, BaseModel, ConfigDict, ValidationInfo, field_validator

#: Control characters, line separators, characters that turn the direction of writing, halves of a character. They could
#: make a message show something else than the setting. Other characters that look blank occur in names of folders.
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def _expanded(place: str) -> str:
    """The home folder in place of a `~` at the beginning, or behind a format as in `wds:~/tars/*.tar`."""
    format_, path = re.fullmatch(r"(\w+:)?(.*)", place).groups("")  # type: ignore[union-attr]
    return format_ + os.path.expanduser(path)


#: A path, an address, or a source of images.
Place = Annotated[str, AfterValidator(_expanded)]


class Section(BaseModel):
    """Base of all sections: unknown keys are errors, numbers are finite, instances do not change."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True, allow_inf_nan=False)

    @field_validator("*", mode="before")
    @classmethod
    def _is_plain(cls, value: Any, info: ValidationInfo) -> Any:
        """Refuses true and false as numbers, and text that cannot be printed."""
        wants = cls.model_fields[str(info.field_name)].annotation
        kinds = (wants, *get_args(wants))
        holds_sections = any(isinstance(kind, type) and issubclass(kind, Section) for kind in kinds)
        for part in value if isinstance(value, list) else [value]:
            if isinstance(part, bool) and wants is not bool and not holds_sections:
                raise ValueError(f"{str(part).lower()} is neither a number nor a text")
            if isinstance(part, str) and _UNPRINTABLE.search(part):
                raise ValueError(f"{part[:60]!r} contains a character that cannot be printed")
        return value

    def with_defaults(self, *idle: str) -> Self:
        """The section with the defaults of these settings, which have no effect here. Then the address of a stage does
        not depend on their values."""
        return self.model_copy(update={name: type(self).model_fields[name].default for name in idle})
