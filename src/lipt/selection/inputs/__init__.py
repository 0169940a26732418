"""What a selection reads: candidates with the outputs, trajectories and gradients of models."""
