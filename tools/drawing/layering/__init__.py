"""A layered layout: boxes in rows by the longest path to them, few crossings, straight wires.

After Sugiyama, Tagawa and Toda, "Methods for visual understanding of hierarchical system structures", 1981: rows, an
order within each row by barycenters, then coordinates. Wires that pass a row have a place in it, as a box of no width.
Everything is in two directions: `along` the wires, from row to row, and `across` them. A wire with several readers
is one line that branches.
"""
