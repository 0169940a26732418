"""Kubeflow pipelines, and the compiled YAML that is uploaded; `python -m pipelines` compiles them anew."""
