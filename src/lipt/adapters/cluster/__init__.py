"""Kubernetes: the fan-out of a box over the nodes, and the engines that run pipelines."""
