"""`lipt config`."""

import click
import yaml

from lipt.cli.options import output_option, print_json, set_option
from lipt.config import Config, load_config


@click.group()
def config() -> None:
    """Show a configuration, or its JSON schema."""


@config.command(short_help="Print every setting.", epilog="Example: lipt config show photos.yaml")
@click.argument("config_path", metavar="[CONFIG]", required=False, type=click.Path(readable=False))
@set_option
@output_option
def show(config_path: str | None, overrides: tuple[str, ...], output: str) -> None:
    """Print every setting of CONFIG, profile and defaults resolved, as YAML."""
    settings = load_config(config_path, list(overrides)).model_dump(mode="json")
    if output == "json":
        print_json(settings)
    else:
        click.echo(yaml.safe_dump(settings, sort_keys=False, allow_unicode=True).rstrip())


@config.command(short_help="Print the JSON schema, for editors.", epilog="Example: lipt config schema > lipt.json")
def schema() -> None:
    """Print the JSON schema for editors: `# yaml-language-server: $schema=FILE` completes and checks settings."""
    print_json(Config.model_json_schema())
