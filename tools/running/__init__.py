"""What keeps a run of a subcommand going: the process, signals, status records, restarts."""
