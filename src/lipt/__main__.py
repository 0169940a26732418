"""`lipt`, and `python -m lipt`."""

from lipt.errors import end_interrupted


def main() -> None:
    """The command line. Ctrl-C ends it as usual also while it loads."""
    try:
        from lipt import cli
    except KeyboardInterrupt:
        end_interrupted()
    cli.main()


if __name__ == "__main__":
    main()
