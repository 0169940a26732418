"""One run on one workspace: artifacts, what a stage is given, checkpoints, processes."""
