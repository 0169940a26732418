"""A run on a cluster: what each pod is handed, does and shows."""
