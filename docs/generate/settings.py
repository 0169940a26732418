"""The page of settings, from the models of the configuration."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from docs.generate.types import target, values
from lipt.config import PROFILES, Config, parse_config
from lipt.flow.variants import LONGER, variants
from lipt.runtime.algorithm import algorithm_label

PAGE = Path(__file__).parents[1] / "reference/settings.md"
_HEAD = """# Settings

This page lists every setting of a configuration, which is a YAML file. Every setting has a default, so write only those
that you change:

```yaml
name: pets
data: {source: photos, image_size: 64}
select: {fraction: 0.1}
train: {epochs: 30}
```

`--set select.fraction=0.2` changes one setting on the command line. `lipt config show FILE` prints all of them, and
`lipt config schema` prints a JSON schema for editors. An unknown setting, a wrong type and a value out of range are
errors. (`make reference` writes this page.)
"""
_TABLE = "| setting | values | default | what it does |\n|---|---|---|---|\n"
_VARIANTS = """### Variants

| `compare.variants` | row of the table | settings that differ from the configuration |
|---|---|---|
"""
_PROFILES = """## Profiles

`profile` changes defaults to those of a published protocol. Settings that you write still override them.
`train.epochs` and `train.steps` exclude each other. The one that you write replaces the other of the profile, and the
one in `--set` replaces the other of the file.

- `paper`: Ro et al., ICML 2023. It trains for 200 epochs of the subset, as our defaults do.
- `ccs`: Zheng et al., ICLR 2023. It trains for 40,000 steps, whatever is kept. Its scores come from 200 epochs on all
  data; ours have a constant learning rate, theirs falls to 0. `select.options.beta` follows from the fraction
  and from the errors of the scorer. (The authors have .3 at 10 %, for a cut over all classes together, and margins of
  probabilities.)
- `dual`: Cho et al., ICML 2025. It trains for 200 epochs of the subset with batches of 32 if 10 % of CIFAR-10 are kept
  (31,400 steps), and of 64 if 20 % are kept (the same steps): then set `train.batch_size: 64`. Its `c_d` is
  that of CIFAR-10; for CIFAR-100 the paper has 4, for ImageNet 11.

The scoring of `ccs` and `dual` takes many epochs: ask `lipt plan` first. If you change `select.algorithm` under one of
them, also write `select.options: {}`.

"""


def text() -> str:
    """The page: the settings outside of sections, a table per section, and the values of the profiles."""
    schema = Config.model_json_schema()
    definitions = schema["$defs"]
    plain, sections = {}, {}
    for name, field in schema["properties"].items():
        (sections if "$ref" in field else plain)[name] = field
    parts = [_HEAD, f"## General\n\n{_TABLE}{_rows(plain, (), definitions)}"]
    for name, field in sections.items():
        section = definitions[target(field)]
        rows = _rows(section["properties"], (name,), definitions)
        parts.append(f"## {name}\n\n{section['description']}\n\n{_TABLE}{rows}")
    return "\n".join([*parts, _VARIANTS + _variants(), _PROFILES + _profiles()])


def _rows(fields: dict[str, Any], section: tuple[str, ...], definitions: dict[str, Any]) -> str:
    rows = []
    for name, field in fields.items():
        path = (*section, name)
        description = " ".join(field["description"].split()).replace("|", "\\|")
        description = description.replace(f"(docs/reference/{PAGE.name})", "([the table below](#profiles))")
        description = description.replace(f"docs/reference/{PAGE.name} lists", "[the table below](#variants) lists")
        description = re.sub(r"docs/reference/(\w+\.md)", r"[\1](\1)", description)
        kinds = values(field, lambda _: "a section")
        rows.append(f"| `{'.'.join(path)}` | {kinds} | {_default(path, field)} | {description} |\n")
        nested = [definitions[target(each)] for each in field.get("anyOf", []) if "$ref" in each]
        rows += [_rows(each["properties"], path, definitions) for each in nested]
    return "".join(rows)


def _default(path: tuple[str, ...], field: dict[str, Any]) -> str:
    """As it is written in YAML. In a section that is null by default, it is the value that counts if it is given."""
    value = Config().model_dump(mode="json")
    for name in path:
        value = value[name] if value else field["default"]
    return f"`{_yaml(value)}`"


def _yaml(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, list):
        return f"[{', '.join(map(_yaml, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{key}: {_yaml(each)}' for key, each in value.items())}}}"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _variants() -> str:
    """Name, label and settings of each variant; values that follow from the configuration are those of the defaults."""
    rows = []
    config = Config()
    for name, variant in variants(config).items():
        settings = [
            f"`{section}.{key}: {_yaml(value)}`"
            for section, values in variant.changes.items()
            for key, value in values.items()
        ]
        if name == LONGER:
            settings.append("`train.steps`: more, by the FLOPs of all that comes before the main training")
        label = variant.label_with([algorithm_label(config)]).replace("*", r"\*")
        rows.append(f"| `{name}` | {label} | {', '.join(settings)} |\n")
    return "".join(rows)


def _profiles() -> str:
    """The values of every setting that some profile changes, and the length of the training."""
    values = {name: parse_config({"profile": name}).model_dump(mode="json") for name in PROFILES}
    changed = {(section, name): None for each in PROFILES.values() for section in each for name in each[section]}
    head = ["setting", *(f"`{name}`" for name in PROFILES)]
    rows = [
        [f"`{section}.{name}`", *(f"`{_yaml(each[section][name])}`" for each in values.values())]
        for section, name in changed | {("train", "epochs"): None}
    ]
    return "".join(f"| {' | '.join(row)} |\n" for row in [head, ["---"] * len(head), *rows])
