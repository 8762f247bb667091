"""Where the data are: what a distributed engine runs on the parts of a table."""
