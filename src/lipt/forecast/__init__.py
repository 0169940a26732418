"""What a run will take, before it starts: `lipt plan`."""
