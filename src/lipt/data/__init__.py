"""Images: where they come from, how they are stored in chunks, and the views that training takes of them."""
