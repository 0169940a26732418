"""LiPT: train on a well-chosen part of the data, on one machine or as a Kubeflow pipeline."""

__version__ = "0.1.0"
