"""Prints what lipt needs, without lipt: a layer of the image that only changes with pyproject.toml."""

import tomllib

with open("pyproject.toml", "rb") as file:
    project = tomllib.load(file)["project"]
extras = project["optional-dependencies"]
needed = [*project["dependencies"], *extras["run"], *extras["kubeflow"]]
print(*(text for text in needed if text != "lipt[run]"), sep="\n")
