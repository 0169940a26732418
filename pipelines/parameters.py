"""The texts of the pipelines' parameters, which the pages of Kubeflow and Argo show."""

from __future__ import annotations

from collections.abc import Callable
from inspect import signature
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])

DESCRIPTIONS = {
    "workspace": "Folder of results, reports and finished work: s3://BUCKET/PREFIX. Finished work is reused.",
    "data": "Images: digits, cifar10, cifar100, or the s3:// address that the pipeline lipt-ingest wrote to.",
    "model": "resnet18, wrn28_10, vit_small, torchvision.resnet18, torchvision.wide_resnet50_2, or "
    "package.module:function.",
    "width": "Channels of the network's first stage. 0: the network's default (64 for resnet18).",
    "algorithm": "Selection algorithm: auto, random, stratified, grand, el2n, glister, gradmatch, ccs ... "
    "(the paper: grand)",
    "fraction": "Kept budget: the share of the candidates in the subset, above 0 and at most 1.",
    "epoch_fraction": "Trained budget: share of the candidates per epoch, drawn from the subset. 0: the whole subset.",
    "jigsaws": "Number of workers that pre-train. The data set must have jigsaws x batches x 256 candidates.",
    "batches": "Batches of 256 images in the shard of one worker.",
    "passes": "Number of passes of a worker over its shard.",
    "epochs": "Epochs of the main training.",
    "train_nodes": "Worker pods that share each batch of theta_* and of the main training. 1: the boxes train alone.",
    "seed": "Seed of all random draws: initialisation, split, shards and order.",
    "seeds": "Seeds; every variant runs once with each of them.",
    "profile": "Defaults of all settings without a parameter: robust, or a published protocol: paper (use it with "
    "algorithm grand), ccs or dual (with the algorithm of that name).",
    "random_baseline": "Also train on a random subset with the same budgets, for the verdict. If the selection is "
    "itself random, the baseline is RS2: a new random subset in every epoch.",
    "config": "All other settings as YAML, such as {select: {balanced: false}}. They must not contradict a parameter.",
    "image": "Container image. Never reuse a tag: nodes and KFP cache images by name.",
    "gpus": "GPUs per pod, as text. Ask for all GPUs of a node: each worker pod has a node to itself. 0: CPUs only.",
    "gpu_resource": "Name under which nodes offer GPUs: nvidia.com/gpu, amd.com/gpu, nvidia.com/mig-2g.20gb ...",
    "tolerations": 'Kubernetes tolerations, a JSON list, such as [{"key": "nvidia.com/gpu", "operator": "Exists"}].',
    "node_selector": 'Labels that a node must have, a JSON object, such as {"pool": "gpu"}.',
    "cpu": "CPU request of each pod, such as 4 or 500m. A pod computes with as many threads, rounded up.",
    "memory": "Memory of each pod, request and limit, such as 8Gi.",
    "s3": "Name of the object store's Secret (accesskey, secretkey) and ConfigMap (endpoint, region).",
    "nodes": "Worker pods that share the jigsaws, groups and score blocks. 0: one pod per jigsaw or group (a pod "
    "with k GPUs takes k of them); the select box scores.",
    "deadline": "Minutes for pre-training, merging groups or scoring in worker pods. Then the run continues with the "
    "jigsaws that arrived, if they are enough.",
    "grace": "Once enough jigsaws have arrived (merge.quorum), the run gives up worker pods that run longer than this "
    "many times the median of the finished ones, and longer than a minute.",
    "queue": "Kueue's LocalQueue for the worker pods. Empty: none. The time in the queue counts against no deadline.",
    "priority": "PriorityClass of the worker pods. Empty: the cluster's default.",
    "store": "Address of the chunk store to write: s3://BUCKET/PREFIX.",
    "claim": "PersistentVolumeClaim with the images, mounted at /data. Empty: no volume.",
    "chunk_mb": "Size of one chunk (tar) in MB.",
    "shuffle_seed": "Seed of the global order of the images (not the seed of a run).",
}


def described(**more: str) -> Callable[[F], F]:
    """Add the texts of a pipeline's parameters to its docstring, from which KFP reads them.

    Args:
        more: texts that differ from `DESCRIPTIONS`, by parameter.
    """

    def describe(function: F) -> F:
        texts = DESCRIPTIONS | more
        lines = [f"    {name}: {texts[name]}" for name in signature(function).parameters]
        function.__doc__ = "\n".join([f"{function.__doc__}", "", "Args:", *lines])
        return function

    return describe
