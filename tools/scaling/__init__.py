"""`engine simulate --sync`: its flags, tables and plot."""
