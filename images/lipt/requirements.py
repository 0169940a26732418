"""Prints what lipt needs, without lipt: a layer of the image that only changes with pyproject.toml."""

import tomllib

with open("pyproject.toml", "rb") as file:
    project = tomllib.load(file)["project"]
print(*project["dependencies"], *project["optional-dependencies"]["kubeflow"], sep="\n")
