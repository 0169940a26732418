"""`lipt completion`."""

import click

_FIRST = {
    # otherwise it splits `--set select.algorithm=ccs` at the equals sign
    "bash": "COMP_WORDBREAKS=${COMP_WORDBREAKS//=/}",
    # a start file that has not loaded zsh's own completion lacks `compdef`
    "zsh": "(( $+functions[compdef] )) || { autoload -Uz compinit && compinit; }",
}


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print a script that completes verbs, options, settings, names and runs in SHELL. Add it to the start file:

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
    if shell in _FIRST:
        click.echo(_FIRST[shell])
    click.echo(template.source_template % template.source_vars())
