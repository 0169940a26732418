"""The pages of the reference that code writes: `make reference`."""
