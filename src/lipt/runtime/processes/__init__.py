"""One stage on several processes of this machine."""
