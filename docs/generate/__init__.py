"""What code writes: pages of the reference, and the signatures of `select`. `make reference` runs it."""
