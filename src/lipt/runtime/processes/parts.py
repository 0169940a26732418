"""Independent parts of a stage (jigsaws, groups of a merge, blocks of scores), shared by the GPUs of one machine."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pkgutil import resolve_name
from typing import Any, TypeVar

from lipt.adapters.store import StoreError
from lipt.errors import RunError
from lipt.runtime.artifact import Artifact
from lipt.runtime.context import Context
from lipt.runtime.processes.child import ProcessGroup
from lipt.runtime.processes.failures import KilledError
from lipt.runtime.processes.parent import count_processes, launch, name_of
from lipt.runtime.stage import Stage

T = TypeVar("T")
#: The inputs of one part, in the order of its stage's arguments.
Given = tuple[Artifact | Sequence[Artifact] | None, ...]
#: `function(context, *inputs, index=index)`, a function of a module.
Maker = Callable[..., Stage]
Made = tuple[dict[int, Artifact], dict[int, RunError]]


def make_parts(ctx: Context, stage: Maker, parts: Mapping[int, Given]) -> Made:
    """Make parts of a stage, on one process per GPU (or as many as `processes` says).

    Args:
        parts: the inputs of each, by index.

    Returns:
        The finished artifacts, and for each lost part the reason: damaged input, no memory, a failed device, or a
        killed process. Both in ascending order.

    Raises:
        LiptError: at once, if the store is unreachable or full, or the configuration is invalid.
        Exception: a bug, here or in the user's model; from another process as `UnexpectedError`.
    """
    processes = 1 if ctx.dry_run else count_processes(ctx, len(parts))
    missing = [
        index for index, inputs in parts.items() if processes > 1 and not stage(ctx, *inputs, index=index).find()
    ]
    made: dict[int, Artifact] = {}
    failed: dict[int, RunError] = {}
    while min(processes, len(missing)) > 1:  # again only after a kill, which loses one part
        done, lost = _share_out(ctx, stage, {index: parts[index] for index in missing}, min(processes, len(missing)))
        for artifact in done.values():
            ctx.workspace.note(artifact, made=True)
        made, failed = made | done, failed | lost
        missing = [index for index in missing if index not in made and index not in failed]
    rest = {index: inputs for index, inputs in parts.items() if index not in made and index not in failed}
    found, lost = make_in_turn(ctx, stage, rest)
    return dict(sorted((made | found).items())), dict(sorted((failed | lost).items()))


def _share_out(ctx: Context, stage: Maker, parts: Mapping[int, Given], processes: int) -> Made:
    """Make parts on several processes. If one of them is killed, the launcher ends the others; then this returns what
    they had finished, and as lost only the part at which the killed process was.
    """
    asked = {str(index): [_refs(given) for given in inputs] for index, inputs in parts.items()}
    label = f"{stage.__name__}, {len(parts)} parts"
    try:
        result = launch(ctx, label, share, processes, {"stage": name_of(stage), "parts": asked})
    except KilledError as error:
        made: dict[int, Artifact] = {}
        for index, inputs in parts.items():
            part = stage(ctx, *inputs, index=index)
            ctx.reporter.stopped(part.label)  # its process cannot say so
            if found := part.find():
                made[index] = found
        unfinished = (index for index in _own(list(parts), error.rank, processes) if index not in made)
        return made, dict.fromkeys(islice(unfinished, 1), error)
    failed = {int(index): RunError(*why) for index, why in result["failed"].items()}
    return {int(index): ctx.workspace.get(ref) for index, ref in result["made"].items()}, failed


def share(ctx: Context, processes: ProcessGroup, *, stage: str, parts: Mapping[str, Sequence[Any]]) -> dict[str, Any]:
    """Make the share of this process. Returns the results of all processes."""
    own = _own(list(parts), processes.ranks.rank, processes.ranks.count)
    inputs = {int(index): tuple(_artifacts(ctx, given) for given in parts[index]) for index in own}
    made, failed = make_in_turn(replace(ctx, shared=processes.folder), resolve_name(stage), inputs)
    did = {
        "made": {index: artifact.ref for index, artifact in made.items()},
        "failed": {index: [error.message, error.remedy] for index, error in failed.items()},
    }
    answers = [json.loads(answer) for answer in processes.ranks.gather(json.dumps(did).encode())]
    return {key: {index: found for answer in answers for index, found in answer[key].items()} for key in did}


def _own(parts: Sequence[T], rank: int, processes: int) -> Sequence[T]:
    """The parts of one process, in the order in which it makes them."""
    return parts[rank::processes]


def make_in_turn(ctx: Context, stage: Maker, parts: Mapping[int, Given], *, may_fail: int | None = None) -> Made:
    """Make parts one after the other; the processes of each stage may share its batches.

    Args:
        may_fail: once more parts than this are lost, the rest is not tried; None: try all.
    """
    made: dict[int, Artifact] = {}
    failed: dict[int, RunError] = {}
    for index, inputs in parts.items():
        if may_fail is not None and len(failed) > may_fail:
            break
        try:
            made[index] = stage(ctx, *inputs, index=index).make()
        except StoreError:  # the other parts need the same store
            raise
        except RunError as error:
            failed[index] = error
    return made, failed


def _refs(given: Artifact | Sequence[Artifact] | None) -> Any:
    if given is None or isinstance(given, Artifact):
        return given and given.ref
    return [artifact.ref for artifact in given]


def _artifacts(ctx: Context, given: Any) -> Artifact | list[Artifact] | None:
    if given is None:
        return None
    return ctx.workspace.get(given) if isinstance(given, str) else [ctx.workspace.get(ref) for ref in given]
