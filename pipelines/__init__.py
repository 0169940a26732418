"""Kubeflow pipelines, and the compiled YAML that users upload; `python -m pipelines` compiles them."""
