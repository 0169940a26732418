"""Why a pod waits, and what to do if a container of it cannot start."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any, NamedTuple


class Waiting(NamedTuple):
    """Why a pod waits. All is empty if it does not."""

    reason: str = ""
    message: str = ""
    container: str = ""
    """Its name; empty: the pod has no node, or no containers yet."""
    image: str = ""
    """Of this container."""

    def __str__(self) -> str:
        return f"{self.reason}: {self.message}"

    @property
    def is_foreign(self) -> bool:
        """Whether lipt does not run in this container: an engine, a mesh or a webhook has added it."""
        return self.container not in ("", *OWN)

    @property
    def cause(self) -> tuple[str, ...]:
        """Equal for pods that one repair lets start. (Most messages name the pod or container.)"""
        foreign = self.container if self.is_foreign else ""
        if self.reason in OF_IMAGES:  # the reason alternates between ErrImagePull and ImagePullBackOff
            return foreign, self.remedy, self.image
        return foreign, self.reason, self.remedy, self.message if self.remedy == _OBJECT else ""

    @property
    def remedy(self) -> str:
        """What helps; empty if the reason does not tell."""
        return next((what for part, what in CANNOT_START.get(self.reason, {}).items() if part in self.message), "")


#: Names of the containers that lipt runs in: in a box, in a pod that a box starts.
OWN = ("main", "worker")
_PUSH = {"": "push the image that it names where the nodes can read it (on kind: kind load docker-image)"}
_OBJECT = "make the Secret or ConfigMap that it names, or add the key"
_USER = "take an image whose user is a number other than 0"
_PROGRAM = "take an image that has this program, as those of lipt have `lipt`"
#: Reason for which a container on a node does not start -> part of the message -> what helps. Another image helps, too.
OF_IMAGES: dict[str, dict[str, str]] = {
    "ErrImagePull": _PUSH,
    "ImagePullBackOff": _PUSH,
    "ErrImageNeverPull": {"": "load the image that it names onto the nodes (on kind: kind load docker-image)"},
    "InvalidImageName": {"": "correct the name of the image"},
    "RegistryUnavailable": {"": "let the nodes reach the registry of the image"},
    "SignatureValidationFailed": {"": "sign the image, as its node demands"},
}
#: All such reasons. Few of them pass by themselves.
CANNOT_START = OF_IMAGES | {
    "ImageInspectError": {"": "mend the container runtime of its node (kubectl describe node)"},
    "CreateContainerConfigError": {" not found": _OBJECT, "couldn't find key": _OBJECT, "runAsNonRoot": _USER},
    "CreateContainerError": {"executable file": _PROGRAM},
    "RunContainerError": {"executable file": _PROGRAM},
}
#: After these the pod has to be made again with other values. After the others its node tries again.
_NOT_TRIED_AGAIN = (_USER, _PROGRAM, *OF_IMAGES["InvalidImageName"].values())


def waits(pod: dict[str, Any]) -> Waiting:
    """While an init container waits, the others only wait for it."""
    status = pod["status"]
    for container in (*status.get("initContainerStatuses", []), *status.get("containerStatuses", [])):
        if waiting := container.get("state", {}).get("waiting"):
            name = container.get("name", "")
            message = " ".join(str(waiting.get("message", "")).split())
            return Waiting(str(waiting.get("reason", "")), message, name, _image(pod, name))
    for condition in status.get("conditions", []):
        if condition["type"] == "PodScheduled" and condition["status"] != "True":
            return Waiting(str(condition.get("reason", "")), str(condition.get("message", "")))
    return Waiting()


def by_cause(found: Iterable[Waiting]) -> list[tuple[int, Waiting]]:
    """(number of pods, why the first of them waits) for each cause."""
    found = list(found)
    counted = Counter(each.cause for each in found)
    first = {each.cause: each for each in reversed(found)}
    return [(count, first[cause]) for cause, count in counted.items()]


def _image(pod: dict[str, Any], name: str) -> str:
    spec = pod.get("spec", {})
    containers = (*spec.get("initContainers", []), *spec.get("containers", []))
    return next((container["image"] for container in containers if container["name"] == name), "")


def advice(waiting: Waiting) -> str:
    """What to do about a pod of a run."""
    what = waiting.remedy or "correct that (docs/howto/cluster-failures.md, A pod does not start)"
    again = "`lipt cancel HANDLE`, then `lipt submit` again"
    final = what in _NOT_TRIED_AGAIN
    if waiting.is_foreign:
        return f"container {waiting.container} is not part of lipt: {what}{f'. Then {again}' if final else ''}"
    if final:
        return f"{what} (-p image=…): {again}"
    if what not in _PUSH.values():
        return f"{what}: the pod then starts by itself"
    return (  # a pod gets its pull secret when it is made
        f"{what}: the pod then starts by itself. For a pull secret (docs/howto/cluster-install.md, The image) or "
        f"another name (-p image=…): {again}"
    )
