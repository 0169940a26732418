"""Any text as a configuration, any value as a setting: it is taken, or refused with one message and exit code 2."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lipt.cli import main
from lipt.config import Config
from lipt.config.base import Section
from lipt.config.error_messages import _settings

PATHS = [".".join(keys) for keys in _settings(Config)]
SECTIONS = {
    name: list(field.annotation.model_fields)
    for name, field in Config.model_fields.items()
    if isinstance(field.annotation, type) and issubclass(field.annotation, Section)
}
PLAIN = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=20)
    | st.sampled_from([10**4000, -(2**63), 2**64, "auto", "digits", "s3://", "1e-9", "os:path", "~", "../..", ""])
)
VALUES = st.recursive(
    PLAIN, lambda below: st.lists(below, max_size=3) | st.dictionaries(PLAIN, below, max_size=3), max_leaves=6
)
#: What YAML is made of.
YAMLISH = st.text(alphabet="&*[]{}:,-!<>?|%@#'\"\\ \n\tab1.0e~", max_size=60)


def show(*arguments: str) -> tuple[Any, str, float]:
    """`lipt config show` in this thread: (exit code, stdout, CPU seconds); what it refuses is one message."""
    out, err, started = StringIO(), StringIO(), time.thread_time()
    with redirect_stdout(out), redirect_stderr(err):
        try:
            main(["config", "show", *arguments])
            code: Any = 0
        except SystemExit as stop:
            code = stop.code
    assert code in (0, 2), err.getvalue()
    if code:
        first, *rest = err.getvalue().splitlines()
        assert first.startswith("lipt: ")
        assert rest[-1].lstrip().startswith("-> ")
        assert (first == "lipt: several problems:") == any(line.startswith("  - ") for line in rest), err.getvalue()
        assert len(rest) <= 12
        assert all(line.startswith(("  - ", "    -> ", "  -> ")) for line in rest)
        assert max(map(len, [first, *rest])) < 2000
    return code, out.getvalue(), time.thread_time() - started


def check(text: str, tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    path.write_text(text, encoding="utf-8", errors="surrogateescape")
    code, shown, seconds = show(str(path))
    assert seconds < 1
    if code == 0:
        path.write_text(shown)
        assert show(str(path))[:2] == (0, shown)


@pytest.fixture(scope="module", autouse=True)
def other_tests_left_nothing() -> Iterator[None]:
    """The collector does not visit millions of their objects while the seconds are counted."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fuzz")


HOSTILE = {
    "itself": "x: &x {y: *x}",
    "brackets": "[" * 5000 + "]" * 5000,
    "braces": "{a: " * 5000,
    "dashes": "- " * 5000,
    "lines": "".join(f"{' ' * depth}a:\n" for depth in range(400)),
    "bomb": "a: &a [x,x,x,x,x,x,x,x,x]\n"
    + "".join(f"{b}: &{b} [{','.join(9 * ['*' + a])}]\n" for a, b in zip("abcdefgh", "bcdefghi", strict=True)),
    "merges": "a: &a {x: 1}\n"
    + "".join(f"{b}: &{b} {{<<: [{','.join(9 * ['*' + a])}]}}\n" for a, b in zip("abcdefgh", "bcdefghi", strict=True)),
    "digits": "seed: " + "9" * 5000,
    "sexagesimal": "seed: " + "1:" * 3000 + "1",
    "twice": "seed: 1\ndata: {}\nseed: 2",
    "twice in a section": "train:\n  lr: 1\n  lr: 2\n",
    "keys": "".join(f"a{i}: 1\n" for i in range(8000)),
    "some keys": "".join(f"a{i}: 1\n" for i in range(900)),
    "long key": "x" * 99_000 + ": 1",
    "large": " " * 200_000,
    "tag": "seed: !!timestamp x",
    "object": "seed: !!python/object/apply:os.system [true]",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_texts_are_refused(folder: Path, name: str) -> None:
    (folder / "run.yaml").write_text(HOSTILE[name])
    code, _, seconds = show(str(folder / "run.yaml"))
    assert code == 2
    assert seconds < 1


@settings(max_examples=200)
@given(text=YAMLISH | st.text(max_size=40))
@example(text="\ufeffseed: 1")
def test_any_text_is_taken_or_refused(folder: Path, text: str) -> None:
    check(text, folder)


@settings(max_examples=200)
@given(
    document=st.dictionaries(
        st.sampled_from(list(Config.model_fields)) | st.text(max_size=5),
        VALUES
        | st.sampled_from(sorted(SECTIONS)).flatmap(
            lambda name: st.dictionaries(st.sampled_from(SECTIONS[name]), VALUES, max_size=3)
        ),
        max_size=3,
    )
)
def test_any_document_is_taken_or_refused(folder: Path, document: dict[str, Any]) -> None:
    check(yaml.safe_dump(document, allow_unicode=True), folder)


@settings(max_examples=300)
@given(path=st.sampled_from(PATHS), value=VALUES.map(lambda value: yaml.safe_dump(value, default_flow_style=True)))
@example(path="data.source", value='"a\\0b"')
@example(path="select.options", value="{a: {b: [.inf, .nan]}}")
def test_any_value_of_a_setting_is_taken_or_refused(path: str, value: str) -> None:
    assert show("--set", f"{path}={value}")[2] < 1


@settings(max_examples=100)
@given(text=st.text(max_size=30) | YAMLISH)
@example(text="a." * 5000 + "a=1")
@example(text="select." * 10 + "a=1")
def test_any_override_is_taken_or_refused(text: str) -> None:
    assert show("--set", text, "--set", f"{text}x")[2] < 1
