"""`lipt completion`."""

import click


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print a script that completes verbs, options, settings and names in SHELL. Add it to the shell's start file:

    \b
    bash  lipt completion bash >> ~/.bashrc
    zsh   lipt completion zsh >> ~/.zshrc
    fish  lipt completion fish > ~/.config/fish/completions/lipt.fish
    """
    from click.shell_completion import get_completion_class

    from lipt.cli import cli

    kind = get_completion_class(shell)
    assert kind is not None  # click knows all three
    template = kind(cli, {}, "lipt", "_LIPT_COMPLETE")
    if shell == "bash":  # otherwise it splits `--set select.algorithm=ccs` at the equals sign
        click.echo("COMP_WORDBREAKS=${COMP_WORDBREAKS//=/}")
    click.echo(template.source_template % template.source_vars())
