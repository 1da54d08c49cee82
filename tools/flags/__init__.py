"""Command-line flags: how they are parsed, and the groups of flags that subcommands share."""
