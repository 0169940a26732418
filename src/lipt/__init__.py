"""LiPT: train on a well-chosen part of the data, on one machine or as a Kubeflow pipeline."""

from lipt.version import __version__ as __version__
