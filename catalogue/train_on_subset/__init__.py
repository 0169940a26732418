"""Train an image classifier on a selected part of its images."""

from .component import train_on_subset

__all__ = ["train_on_subset"]
