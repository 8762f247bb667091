"""`python -m imdh_cli` is `imdh`."""

from imdh_cli.cli.main import program

program()
