"""The front door: the `engine` command, one file a subcommand. Nothing of ours imports this package.

What `engine --help` needs is imported at once; torch and MPI only inside the subcommand that needs them.
"""
