"""Help pages that start with examples, and a group that imports a command when it is called."""

from __future__ import annotations

import importlib
import inspect
from itertools import zip_longest
from typing import Any

import click

HELP = {"help_option_names": ["-h", "--help"]}
SECTIONS = ("Options", "Columns", "Number of clusters", "Method", "Learning rule", "Reading DATA")


class SectionedOption(click.Option):
    """An option, the heading that it stands under, and the value it has when it is given without one."""

    def __init__(
        self, *args: Any, section: str = SECTIONS[0], bare: str | None = None, **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        self.section = section
        self.bare = bare


def _write_examples(formatter: click.HelpFormatter, examples: str) -> None:
    with formatter.section("Examples"):
        for line in inspect.cleandoc(examples).splitlines():
            formatter.write(f"  {line}\n")


class ExamplesCommand(click.Command):
    """A command whose help page shows examples before anything else, and long lists of options in parts."""

    def __init__(self, *args: Any, examples: str = "", **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.examples = examples

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """`--stability data.csv`: what is no number is no value of an option that may do without one."""
        bare = {
            flag: param.bare
            for param in self.get_params(ctx)
            if isinstance(param, SectionedOption) and param.bare is not None
            for flag in param.opts
        }
        spelled = [
            f"{word}={bare[word]}" if word in bare and not following.isdecimal() else word
            for word, following in zip_longest(args, args[1:], fillvalue="")
        ]
        return super().parse_args(ctx, spelled)

    def format_usage(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        super().format_usage(ctx, formatter)
        _write_examples(formatter, self.examples)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        listed: dict[str, list[tuple[str, str]]] = {heading: [] for heading in SECTIONS}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx) if isinstance(param, click.Option) else None
            if record is not None:
                listed[getattr(param, "section", SECTIONS[0])].append(record)
        for heading, records in listed.items():
            if records:
                with formatter.section(heading):
                    formatter.write_dl(records)


class ExamplesGroup(click.Group):
    """A group that knows its commands by name and one line, and imports one only to run it."""

    def __init__(self, *args: Any, examples: str = "", commands_help: dict[str, str], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.examples = examples
        self._lines = commands_help

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self._lines)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in self._lines:
            return None
        command: click.Command = getattr(importlib.import_module(f"imdh_cli.cli.{name}"), name)
        return command

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            from difflib import get_close_matches

            near = get_close_matches(args[0], list(self._lines), n=1)
            if not near:
                raise
            raise click.UsageError(f"{error.message} Did you mean {near[0]!r}?", ctx) from error

    def format_usage(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        super().format_usage(ctx, formatter)
        _write_examples(formatter, self.examples)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(self._lines.items()))
