"""`lipt submit`, `status`, `logs` and `cancel`: runs on a cluster."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from contextlib import nullcontext, suppress
from dataclasses import asdict, replace
from datetime import datetime
from functools import partial

import click
import yaml

from lipt.adapters.cluster.admission import WAIT, explained
from lipt.adapters.cluster.api import Cluster, MissingError, RefusedError
from lipt.adapters.cluster.engine import DEFAULT_NAMESPACE, EngineClient, RunState
from lipt.adapters.cluster.last_words import what_then
from lipt.adapters.cluster.printed import GrowingLog
from lipt.adapters.cluster.runs import (
    Handle,
    PodLog,
    all_placed,
    delete_jobs,
    engine_client,
    pod_logs,
    waiting_reasons,
)
from lipt.cli.options import config_options, output_option, print_json
from lipt.cli.submission import check_submittable, engine_options, no_node, pipeline_parameters, warn
from lipt.cli.verbose import set_when_stopped
from lipt.config import load_config
from lipt.errors import LiptError, RunError, TransientError, UsageError
from lipt.pipeline import ClusterEngine

_POLL_S = 2.0
#: Seconds between two looks at why pods do not start.
_REASONS_S = 30.0


@click.command()
@config_options
@engine_options("System that runs it.", required=True)
@click.option(
    "--dry-run", is_flag=True, help="Validate, print the parameters of the cluster's pipeline; start nothing."
)
@click.option("--wait", is_flag=True, help="Then wait until the run ends; exit code 1 if it failed.")
@output_option
def submit(
    config_path: str,
    overrides: tuple[str, ...],
    engine: ClusterEngine,
    namespace: str | None,
    pairs: tuple[str, ...],
    dry_run: bool,
    wait: bool,
    output: str,
) -> None:
    """Start CONFIG on a cluster. Prints only the handle of the run; with --wait, then its state box by box."""
    config = load_config(config_path, list(overrides))
    for what in check_submittable(config):
        click.echo(f"not checked: {what}", err=True)
    namespace, cluster = namespace or DEFAULT_NAMESPACE[engine], Cluster()
    chosen = engine_client(engine, cluster, namespace)
    known = chosen.parameters()
    parameters = pipeline_parameters(config, known, pairs)
    warn(cluster, engine, namespace, known | parameters)
    if dry_run:
        if output == "json":
            print_json(parameters)
        else:
            click.echo(yaml.safe_dump(parameters, sort_keys=True, allow_unicode=True), nl=False)
        return
    handle = Handle(engine=engine, namespace=namespace, run=chosen.submit(config.name, parameters))
    if output == "json":
        print_json({"handle": str(handle)} | asdict(handle))
    else:
        click.echo(handle)
    if wait:
        goes_on = f"the run goes on: lipt status {handle} --wait"  # the same command would start a second run
        set_when_stopped(goes_on)
        try:
            state = _at_end(chosen, handle, cluster)
        except LiptError as error:
            remedy = goes_on if isinstance(error, TransientError) else f"{error.remedy}; {goes_on}"
            raise type(error)(error.message, remedy) from error
        if output == "text":
            _show(_with_remedies(state, {}, namespace))
        _exit_if_failed(state)


@click.command()
@click.argument("handle")
@click.option("--wait", is_flag=True, help="Wait until the run ends; exit code 1 if it failed.")
@output_option
def status(handle: str, wait: bool, output: str) -> None:
    """Show the state of the run HANDLE, box by box."""
    address, cluster = Handle.parse(handle), Cluster()
    engine = address.client(cluster)
    state = _at_end(engine, address, cluster) if wait else engine.state(address.run)
    why, placed = dict[str, str](), False
    if not state.over:
        with suppress(MissingError, RefusedError):  # not started yet; no right to see pods
            why = _waiting(cluster, address, engine, state)
            placed = all_placed(cluster, address.namespace, engine.workflow(address.run))
    state = _with_remedies(state, why, address.namespace, placed=placed)
    if output == "json":
        print_json(asdict(state))
    else:
        _show(state)
    _exit_if_failed(state)


def _with_remedies(state: RunState, why: Mapping[str, str], namespace: str, *, placed: bool = False) -> RunState:
    """The state with messages that say what to do.

    Args:
        why: box -> why its pods do not start, in place of the message of the engine.
        placed: each pod of the run has a node now.
    """
    tell = partial(explained, namespace=namespace, over=state.over, placed=placed)
    boxes = []
    for box in state.boxes:
        message = why.get(box.name) or tell(box.message)
        then = what_then(message) if box.phase == "Failed" else ""
        boxes.append(replace(box, message=f"{message}{then}"))
    return replace(state, boxes=boxes, message=tell(state.message))


def _waiting(cluster: Cluster, handle: Handle, engine: EngineClient, state: RunState) -> dict[str, str]:
    """Box -> why its pods do not start, and what to do."""

    def without_node() -> str:
        nowhere = no_node(cluster, handle.engine, handle.namespace, state.parameters)
        return nowhere.remedy if nowhere else WAIT

    return waiting_reasons(cluster, handle.namespace, engine.workflow(handle.run), without_node)


def _at_end(engine: EngineClient, handle: Handle, cluster: Cluster) -> RunState:
    """The state of a run once it is over. Says on stderr if somebody suspends it, and why its pods do not start."""
    suspended, looked, told = False, time.monotonic(), dict[str, str]()
    while not (state := engine.state(handle.run)).over:
        suspended = _tell_suspended(handle.run, state, told=suspended)
        if time.monotonic() - looked >= _REASONS_S:
            looked = time.monotonic()
            with suppress(LiptError):  # this only informs
                why = _waiting(cluster, handle, engine, state)
                for box in [box for box in why if box not in told]:
                    click.echo(f"{handle.run}: {box}: {why[box]}", err=True)
                told = why
        time.sleep(_POLL_S)
    return state


def _tell_suspended(run: str, state: RunState, *, told: bool) -> bool:
    """Say that somebody has suspended the run, unless it is told; returns whether it is suspended."""
    if state.suspended and not told:
        click.echo(f"{run}: {state.message}", err=True)
    return state.suspended


def _exit_if_failed(state: RunState) -> None:
    if state.phase == "Failed":
        sys.exit(RunError.exit_code)


@click.command()
@click.argument("handle")
def cancel(handle: str) -> None:
    """Stop the run HANDLE. Finished stages stay in the workspace; the same run started again continues there.

    Of a run that has ended, it stops worker pods that are still running.
    """
    address, cluster = Handle.parse(handle), Cluster()
    engine = address.client(cluster)
    state, jobs = engine.state(address.run), list[str]()
    if not state.over:
        engine.cancel(address.run)
    with suppress(MissingError):  # not started yet
        jobs = delete_jobs(cluster, address.namespace, engine.workflow(address.run))
    if state.over:
        also = f"; its Job {', '.join(jobs)} was still running, and is stopped" if jobs else ""
        click.echo(f"{handle} has ended already: {state.phase}{also}")
    else:
        click.echo(f"{handle} is being stopped")


@click.command()
@click.argument("handle")
@click.option("--box", help="Show only this box, such as train, and its workers.")
@click.option("-f", "--follow", is_flag=True, help="Show what is new until the run ends.")
@output_option
def logs(handle: str, box: str | None, follow: bool, output: str) -> None:
    """Show the logs of the run HANDLE, pod by pod, in the order in which the pods started."""
    if follow and output == "json":
        raise UsageError("--follow prints text as it comes", "remove --output json")
    address, cluster = Handle.parse(handle), Cluster()
    if follow:
        _follow(cluster, address, box)
        return
    engine = address.client(cluster)
    found = list(pod_logs(cluster, address.namespace, engine.workflow(address.run), box=box))
    if output == "json":
        print_json([{"box": each.box, "pod": each.pod, "log": _text(each)} for each in found])
    else:
        for each in found:
            text = _text(each) or ("(it has ended without output)" if each.over else "(no output yet)")
            click.echo(f"== {each.pod} ({each.box})\n{text}", nl=not text.endswith("\n"))
    if not found:
        whose = f"box {box} of {handle}" if box else handle
        over = engine.state(address.run).over
        why = "its pods were deleted, or none has started" if over else "no pod has started yet"
        click.echo(f"lipt: {whose} has no logs: {why}\n  -> lipt status {handle} shows the boxes", err=True)


def _follow(cluster: Cluster, address: Handle, box: str | None) -> None:
    """Print what is new in the logs, until the run is over."""
    engine, last, over, suspended = address.client(cluster), "", False, False
    growing, problems, ended = dict[str, GrowingLog](), dict[str, str](), set[str]()
    while not over:
        state = engine.state(address.run)
        over = state.over  # first, so that the last round sees the ends of all logs
        suspended = _tell_suspended(address.run, state, told=suspended)
        # Not started yet; or deleted, which is an error only if no log was shown.
        with nullcontext() if over and not problems else suppress(MissingError):
            workflow = engine.workflow(address.run)
            for each in pod_logs(cluster, address.namespace, workflow, box=box, without=ended, growing=growing):
                new = "" if each.problem and problems.get(each.pod) == each.problem else _text(each)
                problems[each.pod] = each.problem
                if each.over and not each.problem:
                    ended.add(each.pod)
                if new:
                    head = f"== {each.pod} ({each.box})\n" if each.pod != last else ""
                    click.echo(f"{head}{new}", nl=not new.endswith("\n"))
                    last = each.pod
        if not over:
            time.sleep(_POLL_S)


def _text(pod: PodLog) -> str:
    return f"({pod.problem})\n" if pod.problem else pod.log


def _show(state: RunState) -> None:
    for box in state.boxes:
        seconds = _seconds(box.started, box.finished)
        click.echo(f"{box.name:<10} {box.phase:<10} {seconds:>8}  {box.message}".rstrip())
    click.echo(f"{state.phase}{f': {state.message}' if state.message else ''}")


def _seconds(started: str | None, finished: str | None) -> str:
    if not started or not finished:
        return ""
    return f"{(datetime.fromisoformat(finished) - datetime.fromisoformat(started)).total_seconds():.0f} s"
