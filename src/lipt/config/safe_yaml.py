"""Reads YAML settings: the value, and the line of each key. Ambiguous and endless documents are refused."""

import re
from collections.abc import Iterator
from typing import Any

import yaml
from yaml.composer import ComposerError

from lipt.errors import UsageError, all_in_one

#: The path of a key through the mappings -> its line.
Lines = dict[tuple[str, ...], int]

#: All settings together are 3 kB, 100 keys, three levels.
MAX_CHARACTERS, _MAX_NODES, MAX_DEPTH = 100_000, 2_000, 20
_MAX_BITS = 63
#: What YAML 1.1 reads as octal (010 is 8) or in base 60 (1:30 is 90).
_SURPRISING = re.compile(r"[-+]?(0[0-9_]+$|[0-9_]+:)")


class RefusedError(ComposerError):
    """Valid YAML that is certainly a mistake."""


class _Loader(yaml.SafeLoader):
    """The safe loader. It also refuses duplicate keys, self-references, deep nesting and exploding aliases."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._depth = self._count = 0
        self.doubled = list[RefusedError]()
        """A duplicate key each; read on to find the others."""
        self._sizes: dict[yaml.Node, int] = {}

    def compose_node(self, parent: Any, index: Any) -> Any:
        start, before = self.peek_event(), self._count  # type: ignore[no-untyped-call]
        if self._depth >= MAX_DEPTH:
            raise RefusedError(None, None, f"nested more than {MAX_DEPTH} levels deep", start.start_mark)
        self._depth += 1
        node: Any = super().compose_node(parent, index)
        self._depth -= 1
        is_alias = isinstance(start, yaml.AliasEvent)
        if is_alias and node not in self._sizes:
            raise RefusedError(None, None, f"*{start.anchor} refers to itself", start.start_mark)
        self._count += self._sizes[node] if is_alias else 1
        if self._count > _MAX_NODES:
            raise RefusedError(None, None, f"more than {_MAX_NODES:,} values, aliases expanded", start.start_mark)
        self._sizes.setdefault(node, self._count - before)
        if isinstance(node, yaml.MappingNode) and not is_alias:
            self.doubled += _doubled_keys(node)
        return node

    def construct_object(self, node: Any, deep: bool = False) -> Any:
        try:
            value = super().construct_object(node, deep=deep)
        except yaml.YAMLError:
            raise
        except Exception as error:  # PyYAML lets ValueError, KeyError, AttributeError ... of a wrong value through
            raise RefusedError(None, None, f"no {node.tag.rpartition(':')[2]}: {error}", node.start_mark) from error
        if isinstance(value, int) and value.bit_length() > _MAX_BITS:
            raise RefusedError(None, None, f"a number with more than {_MAX_BITS} bits", node.start_mark)
        if isinstance(value, int | float) and _SURPRISING.match(node.value):
            why = f"{node.value} is the number {value:g} in YAML; write that number, or quote the text"
            raise RefusedError(None, None, why, node.start_mark)
        return value


# YAML 1.2: 1e-3 is a number. To PyYAML it is a text, as it has no dot. The dumper learns it too: it quotes such texts.
for _side in (_Loader, yaml.SafeDumper):
    _side.add_implicit_resolver(
        "tag:yaml.org,2002:float",
        re.compile(r"[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)[eE][-+]?[0-9]+$"),
        list("-+.0123456789"),
    )


def read_yaml(text: str, what: str) -> tuple[Any, Lines]:
    """The value of a YAML text, and the line of each key in its mappings.

    Args:
        what: the text's name, for errors.

    Raises:
        UsageError: not YAML, a duplicate key, an alias that refers to itself, too large, or nested too deep.
    """
    if len(text) > MAX_CHARACTERS:
        raise UsageError(f"{what} is larger than {MAX_CHARACTERS // 1000} kB", "give a file of settings")
    try:
        loader = _Loader(text)
        node = loader.get_single_node()
        if loader.doubled:
            doubled = sorted(loader.doubled, key=lambda error: error.problem_mark.line if error.problem_mark else 0)
            raise all_in_one([_located(error, text, what) for error in doubled])
        value = loader.construct_document(node) if node is not None else None
    except yaml.error.MarkedYAMLError as error:
        raise _located(error, text, what) from None
    except yaml.YAMLError as error:
        raise UsageError(f"{what} is not YAML: {' '.join(str(error).split())}", "correct it") from None
    return value, dict(_lines(node, ()))


def _located(error: yaml.error.MarkedYAMLError, text: str, what: str) -> UsageError:
    """The error with the line of the text that it is about."""
    mark = error.problem_mark or error.context_mark
    line = f", line {mark.line + 1}" if mark and "\n" in text else ""
    why = " ".join(f"{error.problem or error.context}".split())
    named = what if isinstance(error, RefusedError) else f"{what} is not YAML"
    remedy = "indent with spaces instead of tabs" if "'\\t'" in why else "correct that line"
    return UsageError(f"{named}{line}: {why}", remedy)


def _doubled_keys(node: yaml.MappingNode) -> Iterator[RefusedError]:
    """An error for each key that this mapping has already."""
    seen: dict[tuple[str, str], int] = {}
    for key, _ in node.value:
        name = (key.tag, str(key.value))
        if isinstance(key, yaml.ScalarNode) and name in seen:
            why = f"{key.value!r} is given twice, first in line {seen[name]}"
            yield RefusedError(None, None, why, key.start_mark)
        seen.setdefault(name, key.start_mark.line + 1)


def _lines(node: yaml.Node | None, path: tuple[str, ...]) -> list[tuple[tuple[str, ...], int]]:
    if not isinstance(node, yaml.MappingNode):
        return []
    found = []
    for key, value in node.value:
        if isinstance(key, yaml.ScalarNode):
            below = (*path, str(key.value))
            found += [(below, key.start_mark.line + 1), *_lines(value, below)]
    return found
