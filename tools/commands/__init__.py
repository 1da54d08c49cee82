"""One file a subcommand: each has `parser()` and `run(options, session)`."""
