"""Where each command of the pages is executed, or why it is not: read from what executes it, not from a list.

A command belongs to one place. `test_places.py` fails for a command that belongs to none or to two.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from functools import cache

from tests.docs.commands import Command, all_commands, commands
from tests.docs.pages import ROOT, script

#: Verbs that need neither a cluster nor another machine.
VERBS = {
    "compare", "completion", "config", "doctor", "export", "gc", "ingest", "init", "ls", "open", "pipeline", "plan",
    "report", "reproduce", "run", "select", "stage", "sweep",
}  # fmt: skip
#: What else runs here, in a reader's folder or in a copy of the repository.
_SHELL = re.compile(
    r"git clone REPOSITORY|cd |python3 -m venv |source |export LIPT_METRICS=|make (pipelines|reference)$|lipt --version"
)

#: Reasons why a command is executed nowhere; each with the commands that it explains.
EXEMPT = {
    # Gigabytes of wheels. The gate installs the same package from the same file, `make .venv/dev.ok`.
    "installs packages": re.compile(r"pip install (--extra-index-url \S+ )?\.\[(run|kubeflow)\]$|make setup$"),
    "installs packages, then runs what the tutorial runs (test_tutorial.py)": re.compile(r"make run$"),
    # `catalogue/validate` reads what the first command fetched. tests/pipeline/test_catalogue.py checks the component.
    "needs a repository on the network": re.compile(r"git clone https://|catalogue/validate build/theirs$"),
    # The builds of tests/e2e/kind.sh use the same target; a test must not push.
    "pushes an image to a registry": re.compile(r"(make image IMAGE=|docker push )REGISTRY/"),
    # Other runs on the cluster need Argo; the tests remove what is ours (test_uninstall.py).
    "takes Argo off the cluster": re.compile(r"kubectl delete (-n argo -f https://\S+|namespace argo)$"),
    # tests/contract/test_s3_role.py tries what a pod does with its role.
    "needs AWS": re.compile(r"kubectl -n NAMESPACE annotate serviceaccount lipt-worker eks\."),
    # Executing it again would only change its outputs; test_examples.py executes the code.
    "rewrites a file of the checkout": re.compile(r"make notebook$"),
    # No test could tell whether pictures are right. The CI workflow looks for barriers in its runner's browser.
    "needs a browser": re.compile(r"make figures$"),
}


def places(command: Command) -> list[str]:
    """The places to which a command belongs."""
    exempt = [reason for reason, pattern in EXEMPT.items() if pattern.match(command.text)]
    return [place for place, holds in _PLACES.items() if holds(command)] + exempt


def here(command: Command) -> bool:
    """The tests of the pages run it on this machine (test_commands_run.py)."""
    return bool(_SHELL.match(command.text)) or is_local(command.words)


def is_local(words: tuple[str, ...]) -> bool:
    """Whether it is a command of `lipt` that works without a cluster."""
    asks = "--engine" in words and words[1] != "plan"
    about_a_run = any(word in ("$handle", "HANDLE") or word.startswith("argo/") for word in words)
    return words[0] == "lipt" and words[1] in VERBS and not asks and not about_a_run


def against_a_stand_in(command: Command) -> bool:
    """The tests of the pages run it against a server that answers as Kubeflow Pipelines and Argo do
    (test_commands_stand_in.py): no cluster of the tests has Kubeflow, or that many nodes with GPUs."""
    words = command.words
    asks = words[0] == "lipt" and words[1] in ("doctor", "submit") and "--engine" in words
    return words[0] == "kfp" or (asks and not on_the_cluster(command))


def on_the_cluster(command: Command) -> bool:
    """An end-to-end test reads it from a page and runs it; a page may repeat a command of another."""
    return command.text in _read_by_tests()


def makes_the_cluster(command: Command) -> bool:
    """The driver of the end-to-end tests runs it, or its like with the names of the tests' own cluster."""
    driver = (ROOT / "tests/e2e/kind.sh").read_text(encoding="utf-8")
    if command.words[0] == "kubectl":
        *start, last = command.words
        return " ".join(start) in driver and last in driver
    return re.match(r"kind (create cluster|load docker-image \S+)$|make image VARIANT=cpu$", command.text) is not None


def in_the_gate(command: Command) -> bool:
    """`.ci/run` runs this target of make, or one that runs it."""
    gate = (ROOT / ".ci/run").read_text(encoding="utf-8")
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^ *\(?(?:nice )?make (\S+)", gate, re.MULTILINE))
    for target in sorted(targets):
        recipe = re.search(rf"^{target}:.*\n((?:\t.*\n)*)", makefile, re.MULTILINE)
        targets |= set(re.findall(r"\$\(MAKE\).* (\S+)$", recipe[1], re.MULTILINE)) if recipe else set()
    return command.words[0] == "make" and command.words[1:] in {(target,) for target in targets}


_PLACES: dict[str, Callable[[Command], bool]] = {
    "here": here,
    "stand-in": against_a_stand_in,
    "cluster": on_the_cluster,
    "driver of the cluster": makes_the_cluster,
    "gate": in_the_gate,
}


@cache
def _read_by_tests() -> frozenset[str]:
    """The commands in the parts of pages that the end-to-end tests run: those of their calls of `script`."""
    found = set()
    for path in sorted((ROOT / "tests/e2e").glob("test_*.py")):
        for page, start, without in _calls(path.read_text(encoding="utf-8")):
            found |= {" ".join(words) for words in commands(script(page, start, without=without))}
    return frozenset(found)


def _calls(source: str) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """(page, start, without) of every call of `script` within a test."""
    tree = ast.parse(source)
    constants: dict[str, ast.expr] = {}
    for statement in tree.body:
        if isinstance(statement, ast.Assign):
            (target,), value = statement.targets, statement.value
            pairs = zip(target.elts, value.elts, strict=True) if _both_tuples(target, value) else [(target, value)]
            constants |= {name.id: each for name, each in pairs if isinstance(name, ast.Name)}
    tests = [each for each in tree.body if isinstance(each, ast.FunctionDef) and each.name.startswith("test_")]
    for call in (node for test in tests for node in ast.walk(test)):
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "script":
            given = [each.value for each in call.keywords if each.arg == "without"]
            values = [constants[each.id] if isinstance(each, ast.Name) else each for each in (*call.args[:2], *given)]
            page, start, *rest = map(ast.literal_eval, values)
            yield page, start, rest[0] if rest else ()


def _both_tuples(target: ast.expr, value: ast.expr) -> bool:
    return isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple)


def listed() -> dict[str, list[Command]]:
    """All commands by place."""
    found: dict[str, list[Command]] = {}
    for command in all_commands():
        for place in places(command):
            found.setdefault(place, []).append(command)
    return found
