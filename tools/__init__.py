"""The `engine` command line, one file per subcommand in `commands/`. No other package but pycaffe imports this one.

What `engine --help` needs is imported at once; torch and MPI only inside the subcommand that needs them.
"""
