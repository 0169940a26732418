"""Rights and installation: what `lipt doctor` concludes from a cluster's answers, and what it tells to do."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from lipt import __version__
from lipt.adapters.cluster import preflight
from lipt.adapters.cluster.api import RefusedError
from lipt.adapters.cluster.kubeflow import Kubeflow
from lipt.adapters.cluster.preflight import UnknownError, installation, rights
from lipt.cli.submission import no_queue, no_store, warn
from lipt.errors import RunError, UsageError
from tests.unit.cluster.answers import Answers, site

ROOT = Path(__file__).parents[3]


def test_rights_that_are_missing_are_listed() -> None:
    cluster = Answers(denied=lambda spec: spec["resourceAttributes"]["verb"] == "create")
    with pytest.raises(UsageError) as error:
        preflight.user_rights(site(cluster))
    assert error.value.message == "you may not create workflows.argoproj.io in vision"
    cluster_without_patch = Answers(denied=lambda spec: spec["resourceAttributes"]["verb"] == "patch")
    with pytest.raises(UsageError, match=r"you may not patch workflows\.argoproj\.io in vision"):  # for `lipt cancel`
        preflight.user_rights(site(cluster_without_patch))
    with pytest.raises(UsageError, match=r"you may not create services/proxy in vision"):
        preflight.user_rights(site(cluster, engine="kubeflow"))
    assert preflight.user_rights(site(cluster, engine="kubeflow"), endpoint=True)


def test_who_has_the_role_edit_is_not_told_to_get_it() -> None:
    """Without Argo's aggregate roles it has no rights on workflows."""
    with pytest.raises(UsageError, match="Argo's aggregate roles are not installed"):
        preflight.user_rights(site(Answers(denied=lambda spec: "argo" in spec["resourceAttributes"]["group"])))
    beside = Answers(denied=lambda spec: spec["resourceAttributes"]["group"] == "argoproj.io")
    with pytest.raises(UsageError, match="--clusterrole=edit"):  # no second controller beside that of Kubeflow
        preflight.user_rights(site(beside, engine="kubeflow"))
    neither = Answers(denied=lambda spec: spec["resourceAttributes"]["group"] in ("", "argoproj.io"))
    with pytest.raises(UsageError, match="--clusterrole=edit"):
        preflight.user_rights(site(neither))
    no_pods = Answers(denied=lambda spec: spec["resourceAttributes"]["resource"] in ("workflows", "pods"))
    with pytest.raises(UsageError, match="--clusterrole=edit"):
        preflight.user_rights(site(no_pods))


def test_the_account_of_the_boxes() -> None:
    accounts = "/api/v1/namespaces/vision/serviceaccounts"
    denied = Answers({f"{accounts}/lipt-run": {}}, denied=lambda spec: "lipt-run" in spec["user"])
    with pytest.raises(RunError, match=r"lipt-run may not create jobs\.batch, .*patch workflowtaskresults"):
        rights.account_rights(site(denied))
    profile = Answers({f"{accounts}/default-editor": {}})
    assert "default-editor" in rights.account_rights(site(profile, engine="kubeflow"))
    with pytest.raises(RunError, match="no ServiceAccount lipt-run"):
        rights.account_rights(site(Answers()))
    reviews = "/apis/authorization.k8s.io/v1/namespaces/vision/localsubjectaccessreviews"
    with pytest.raises(UnknownError) as error:
        rights.account_rights(site(Answers({f"{accounts}/lipt-run": {}, reviews: RefusedError("no")})))
    assert "--as=system:serviceaccount:vision:lipt-run" in error.value.remedy


def test_objects_of_the_store_are_checked_by_key_and_never_shown() -> None:
    path = "/api/v1/namespaces/vision"
    secret = {"data": {"accesskey": "QQ==", "secretkey": "aHVudGVyMg=="}}
    documents: dict[str, Any] = {f"{path}/configmaps/lipt-s3": {"data": {"endpoint": "http://s"}}}
    documents[f"{path}/secrets/lipt-s3"] = secret
    assert installation.store_objects(site(Answers(documents))) == "Secret and ConfigMap lipt-s3"
    documents[f"{path}/secrets/lipt-s3"] = {"data": secret["data"] | {"accesskey": ""}}
    with pytest.raises(RunError) as error:
        installation.store_objects(site(Answers(documents)))
    assert error.value.message == "Secret lipt-s3 in vision has no accesskey"
    assert "kubectl -n vision create secret generic lipt-s3" in error.value.remedy
    assert error.value.remedy.endswith("| kubectl apply -f -")  # `create` alone fails, because the Secret exists
    assert "aHVudGVyMg" not in str(error.value)
    documents[f"{path}/secrets/lipt-s3"] = RefusedError("no")
    with pytest.raises(UnknownError, match="you may not read Secret lipt-s3"):
        installation.store_objects(site(Answers(documents)))


def test_submit_warns_of_a_store_that_pods_cannot_reach(capsys: pytest.CaptureFixture[str]) -> None:
    path, pair = "/api/v1/namespaces/vision", {"accesskey": "QQ==", "secretkey": "QQ=="}
    documents: dict[str, Any] = {f"{path}/configmaps/mine": {"data": {"endpoint": "http://s"}}}
    documents |= {f"{path}/secrets/mine": {"data": pair}, "/api/v1/nodes": RefusedError("no")}
    cluster = Answers(documents)
    warn(cluster, "argo", "vision", {"s3": "mine"})
    assert capsys.readouterr().err == ""
    warn(cluster, "argo", "vision", {"s3": "nope"})
    assert capsys.readouterr().err == (
        "pods will not reach the store: ConfigMap nope in vision has no endpoint\n"
        "  -> kubectl -n vision create configmap nope --from-literal=endpoint=… --dry-run=client -o yaml "
        "| kubectl apply -f -\n"
    )
    hidden = {f"{path}/configmaps/nope": RefusedError("no"), f"{path}/secrets/nope": RefusedError("no")}
    assert no_store(Answers(hidden), "argo", "vision", {"s3": "nope"}) is None


def test_on_aws_pods_may_have_a_role_in_place_of_the_secret() -> None:
    address = "/api/v1/namespaces/vision/configmaps/lipt-s3"
    documents: dict[str, Any] = {address: {"data": {"endpoint": "https://s3.eu-central-1.amazonaws.com"}}}
    with pytest.raises(UnknownError, match=r"no Secret lipt-s3 .*\n  -> without it, the accounts"):
        installation.store_objects(site(Answers(documents)))
    documents[address] = {"data": {"endpoint": "http://s"}}
    with pytest.raises(RunError, match="Secret lipt-s3 in vision has no accesskey"):
        installation.store_objects(site(Answers(documents)))


NOT_READY = {"type": "Ready", "status": "False"}
CRASHED = {"restartCount": 3, "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off"}}}
MINIO_LOG = """Error: unable to create (/data/.minio.sys/tmp) file access denied, drive may be faulty
FATAL Unable to initialize backend: Unable to write to the backend
      > Please ensure MinIO binary has write permissions for the backend
"""
UNBOUND = {"type": "PodScheduled", "status": "False", "message": "pod has unbound immediate PersistentVolumeClaims"}


@pytest.mark.parametrize(
    ("conditions", "containers", "job", "message", "remedy"),
    [
        ([NOT_READY], [CRASHED], {}, "cannot write to its volume, which belongs to another user", "components/volume-"),
        ([UNBOUND], [], {}, "MinIO waits for a node: pod has unbound immediate", "get pvc"),
        ([NOT_READY], [{"restartCount": 0}], {}, "MinIO has not started yet", "wait a minute"),
        (
            [NOT_READY],
            [{"restartCount": 0}],
            {"first": "ImagePullBackOff"},
            "cannot use an image of MinIO's pod: ImagePullB",
            "push the",
        ),
        (
            [NOT_READY],
            [{"restartCount": 0}],
            {"first": "InvalidImageName"},
            "pod: InvalidImageName",
            "correct the name of the image, or take another image: `images` in your overlay",
        ),
        (
            [NOT_READY],
            [{"restartCount": 0}],
            {"first": "ImageInspectError"},
            "MinIO has not started yet: ImageInspectError",
            "wait a minute",
        ),
        (
            [NOT_READY],
            [{"state": {"waiting": {"reason": "CreateContainerConfigError", "message": 'no secret "minio-root"'}}}],
            {"status": {}},
            "Job lipt-setup, has not ended yet",
            "logs job/lipt-setup",
        ),
        ([{"type": "Ready", "status": "True"}], [], {"status": {}}, "Job lipt-setup, has not ended yet", "wait"),
        (
            [{"type": "Ready", "status": "True"}],
            [],
            {"status": {"conditions": [{"type": "Failed", "status": "True", "message": "too long"}]}},
            "Job lipt-setup, failed: too long",
            "delete job lipt-setup",
        ),
    ],
)
def test_our_store_says_why_it_does_not_start(
    conditions: list[Any], containers: list[Any], job: dict[str, Any], message: str, remedy: str
) -> None:
    path = "/api/v1/namespaces/lipt-store"
    mesh = {"name": "istio-proxy", "restartCount": 0, "state": {"running": {}}}
    statuses = [mesh, *({"name": "minio"} | container for container in containers)]
    pod = {"metadata": {"name": "m"}, "status": {"conditions": conditions, "containerStatuses": statuses}}
    if reason := job.get("first"):  # the container that gives the volume to MinIO
        pod["status"]["initContainerStatuses"] = [{"name": "volume-owner", "state": {"waiting": {"reason": reason}}}]
    documents: dict[str, Any] = {f"{path}/pods": {"items": [pod]}, f"{path}/pods/m/log": MINIO_LOG}
    address = {"data": {"endpoint": "http://minio.lipt-store:9000"}}
    documents["/api/v1/namespaces/vision/configmaps/lipt-s3"] = address
    if job:
        documents["/apis/batch/v1/namespaces/lipt-store/jobs/lipt-setup"] = job
    with pytest.raises(RunError) as error:
        installation.store_objects(site(Answers(documents)))
    assert message in error.value.message
    assert remedy in error.value.remedy
    address["data"]["endpoint"] = "https://s3.example"  # another store: ours is nobody's business
    with pytest.raises(RunError, match="Secret lipt-s3 in vision has no accesskey"):
        installation.store_objects(site(Answers(documents)))


def test_the_service_of_a_training_on_several_nodes() -> None:
    text = (ROOT / "manifests/base/access/access.yaml").read_text(encoding="utf-8")
    (shipped,) = [document for document in yaml.safe_load_all(text) if document["kind"] == "Service"]
    path = "/api/v1/namespaces/vision/services/lipt-training"
    assert preflight.training_service(site(Answers({path: shipped}))) == "Service lipt-training, headless"
    with pytest.raises(RunError, match="vision has no Service lipt-training") as error:
        preflight.training_service(site(Answers(), engine="kubeflow"))
    assert error.value.remedy == "kubectl apply -k manifests/overlays/kubeflow"
    for changed in ({"clusterIP": "10.0.0.1"}, {"selector": {"app": "other"}}):
        with pytest.raises(RunError, match="not the headless one") as error:
            preflight.training_service(site(Answers({path: {"spec": shipped["spec"] | changed}})))
        assert "kubectl -n vision delete service lipt-training" in error.value.remedy
    with pytest.raises(UnknownError, match="you may not read Service lipt-training"):
        preflight.training_service(site(Answers({path: RefusedError("no")})))


def test_old_servers_and_missing_namespaces() -> None:
    version = {"major": "1", "minor": "28+", "gitVersion": "v1.28.3"}
    with pytest.raises(RunError, match=r"v1\.28\.3"):
        preflight.server(Answers({"/version": version}), "argo", "vision")
    new = {"/version": version | {"minor": "34"}}
    with pytest.raises(RunError, match="no namespace vision"):
        preflight.server(Answers(new), "argo", "vision")
    hidden = Answers(new | {"/api/v1/namespaces/vision": RefusedError("no")})
    assert "namespace vision" in preflight.server(hidden, "argo", "vision")


def test_an_uploaded_pipeline_of_another_version_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with (ROOT / "pipelines/lipt.yaml").open(encoding="utf-8") as file:
        spec, platform = yaml.safe_load_all(file)
    uploaded = {"pipeline_spec": spec, "platform_spec": platform}
    answer = SimpleNamespace(pipeline_versions=[SimpleNamespace(pipeline_spec=uploaded)])
    monkeypatch.setattr(Kubeflow, "__init__", lambda self, *_: setattr(self, "namespace", "vision"))
    monkeypatch.setattr(Kubeflow, "_pipeline", lambda *_: "p1")
    monkeypatch.setattr(Kubeflow, "_ask", lambda *_: answer)
    image = spec["root"]["inputDefinitions"]["parameters"]["image"]
    image["defaultValue"] = "registry/lipt:stable-cpu@sha256:0123"  # the label of the pods tells the version
    text, defaults = preflight.pipeline(Answers(), "kubeflow", "vision")
    assert (text, defaults["jigsaws"], defaults["workspace"]) == (f"pipeline lipt {__version__}", 4, None)
    executors = platform["platforms"]["kubernetes"]["deploymentSpec"]["executors"]
    executors["exec-dispatch"]["podMetadata"]["labels"]["app.kubernetes.io/version"] = "0.0.1"
    for ask in (Kubeflow(Answers(), "vision").parameters, lambda: Kubeflow(Answers(), "vision").submit("tiny", {})):
        with pytest.raises(UsageError, match=r"for lipt 0\.0\.1, but this is") as error:
            ask()
        assert "kfp pipeline create-version -n lipt" in error.value.remedy
    del uploaded["platform_spec"]
    image["defaultValue"] = f"lipt:{__version__}"
    assert Kubeflow(Answers(), "vision").parameters()["jigsaws"] == 4


@pytest.mark.parametrize("group", [{}, {"/apis/argoproj.io/v1alpha1": {"resources": [{"name": "applications"}]}}])
def test_without_argo(group: dict[str, Any]) -> None:
    """Also where there is Argo CD, which has the same API group."""
    with pytest.raises(UsageError, match="no Argo Workflows"):
        preflight.pipeline(Answers(group), "argo", "vision")


def test_without_our_template() -> None:
    group = {"resources": [{"name": "workflows"}, {"name": "workflowtemplates"}]}
    with pytest.raises(UsageError, match="vision has no WorkflowTemplate lipt\n  -> kubectl apply"):
        preflight.pipeline(Answers({"/apis/argoproj.io/v1alpha1": group}), "argo", "vision")


QUEUE = "/apis/kueue.x-k8s.io/v1beta1/namespaces/vision/localqueues/team"
KUEUE = {"/apis/kueue.x-k8s.io": {"preferredVersion": {"version": "v1beta1"}}}


def test_a_queue_that_would_not_do_what_was_asked() -> None:
    with pytest.raises(RunError, match="no Kueue, so worker pods would not wait in queue team"):
        preflight.queue(site(Answers(), queue="team"))
    with pytest.raises(RunError, match="vision has no LocalQueue team, so worker pods would wait forever"):
        preflight.queue(site(Answers(KUEUE), queue="team"))
    with pytest.raises(UnknownError, match="you may not see LocalQueue team"):
        preflight.queue(site(Answers(KUEUE | {QUEUE: RefusedError("no")}), queue="team"))
    assert preflight.queue(site(Answers(KUEUE | {QUEUE: {}}), queue="team")) == "LocalQueue team"


def test_submit_warns_of_such_a_queue_and_needs_no_image_to_do_so() -> None:
    told = no_queue(Answers(), "argo", "vision", {"queue": "team", "image": None})
    assert told is not None
    assert "no Kueue" in told.message
    assert no_queue(Answers(), "argo", "vision", {"queue": ""}) is None
