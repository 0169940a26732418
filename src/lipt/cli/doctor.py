"""`lipt doctor`."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

import click

from lipt.adapters.cluster import preflight
from lipt.adapters.cluster.api import Cluster
from lipt.adapters.cluster.engine import DEFAULT_NAMESPACE
from lipt.adapters.cluster.job_manifest import Pods
from lipt.adapters.cluster.kubeflow_client import address
from lipt.adapters.cluster.patience import UnreachableError
from lipt.cli.machine_checks import CheckResult, check_machine, model, packages, run_check, selection, workspace
from lipt.cli.options import config_options, output_option, parse_pairs, print_json
from lipt.cli.submission import check_submittable, engine_options
from lipt.config import Config, load_config
from lipt.errors import LiptError, RunError, UsageError
from lipt.pipeline import ClusterEngine


@click.command()
@config_options
@engine_options("Check a cluster instead of this machine.")
@output_option
def doctor(
    config_path: str,
    overrides: tuple[str, ...],
    engine: ClusterEngine | None,
    namespace: str | None,
    pairs: tuple[str, ...],
    output: str,
) -> None:
    """Check that CONFIG can run here: packages, device, workspace rights, data and model. Prints the next step for
    each problem.

    With --engine, check that it can be submitted: the cluster, your rights, the rights of the run's account, the
    store's Secret, the pipeline, nodes and GPUs. Then a small pod tests image, network and store, and is deleted.
    """
    if engine is None and (namespace or pairs):
        raise UsageError("-n and -p describe pods on a cluster", "add --engine argo or --engine kubeflow")
    config = load_config(config_path, list(overrides))
    findings = check_machine(config) if engine is None else _check_cluster(config, engine, namespace, pairs)
    if output == "json":
        print_json({name: {"ok": ok, "finding": text} for name, (ok, text) in findings.items()})
    else:
        show = _printer()
        for name, (ok, text) in findings.items():
            show(f"{_SIGNS[ok]}  {name:<10} {text}")
    if any(ok is False for ok, _ in findings.values()):
        sys.exit(RunError.exit_code)


def _printer() -> Callable[[str], None]:
    """What prints a finding, also where the extra `run` is not installed."""
    try:
        from lipt.report.terminal import print_text
    except ModuleNotFoundError:
        return click.echo
    return print_text


_SIGNS = {True: "ok  ", False: "FAIL", None: "?   "}


def _check_cluster(
    config: Config, engine: ClusterEngine, namespace: str | None, pairs: tuple[str, ...]
) -> dict[str, CheckResult]:
    """A pod tests the workspace, because pods use it. This machine tests it too if the store's address is set here."""
    given = parse_pairs("-p", pairs, Pods.model_fields, of="pods")
    Pods.parse({"image": "lipt"} | given)  # reports wrong values before it asks the cluster
    namespace = namespace or DEFAULT_NAMESPACE[engine]
    findings = {"packages": run_check(packages, config), "model": run_check(model, config, None)}

    def settings() -> str:
        unknown = "".join(f"; not checked: {what}" for what in check_submittable(config))
        return f"{selection(config, None)}; {config.workspace}{unknown}"

    findings["settings"] = run_check(settings)
    if os.environ.get("LIPT_S3_ENDPOINT") and config.workspace.startswith("s3://"):
        findings["workspace"] = run_check(workspace, config)
    try:
        cluster = Cluster(patience_s=_PATIENCE_S)
        findings["cluster"] = True, preflight.server(cluster, engine, namespace)
    except LiptError as error:
        return findings | {"cluster": (False, str(error))}
    try:
        _ask_cluster(findings, config, cluster, engine, namespace, given)
    except UnreachableError as error:
        findings["cluster"] = False, str(error)
    return findings


def _ask_cluster(
    findings: dict[str, CheckResult],
    config: Config,
    cluster: Cluster,
    engine: ClusterEngine,
    namespace: str,
    given: dict[str, Any],
) -> None:
    """Do the checks that ask the API server, and add their findings.

    Args:
        given: fields of `Pods` that the user set.

    Raises:
        UnreachableError: it does not answer any more, so the checks that are left would wait for it in vain.
    """
    parameters: dict[str, Any] = {}

    def pipeline() -> str:
        try:
            text, found = preflight.pipeline(cluster, engine, namespace)
        except UnreachableError as error:
            if engine == "kubeflow":  # its own server is down; the API server may still answer
                raise RunError(error.message, error.remedy) from None
            raise
        parameters.update(found)
        return text

    findings["pipeline"] = run_check(pipeline)
    defaults = {name: value for name, value in parameters.items() if name in Pods.model_fields}
    pods = Pods.parse({"image": f"lipt:{version('lipt')}"} | defaults | given)
    site = preflight.Site(cluster=cluster, engine=engine, namespace=namespace, pods=pods)
    endpoint = engine == "kubeflow" and address() is not None
    findings["rights"] = run_check(preflight.user_rights, site, endpoint=endpoint)
    for name, check in preflight.CHECKS.items():
        findings[name] = run_check(check, site)
    if pods.queue:
        findings["queue"] = run_check(preflight.queue, site)
    if config.train.nodes > 1:
        findings["service"] = run_check(preflight.training_service, site)
    findings["pod"] = None, "skipped: fix the settings first"
    if findings["settings"][0]:
        findings["pod"] = run_check(preflight.pod, site, workspace=config.workspace, data=config.data.source)


#: The other commands wait longer, for an API server that restarts.
_PATIENCE_S = 3.0
