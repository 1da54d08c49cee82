"""The schedule `auto` and all that is measured for planning while training goes on."""
