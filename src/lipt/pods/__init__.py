"""A run on a cluster: the pods' inputs, work and outputs."""
