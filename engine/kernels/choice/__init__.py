"""Which of several ways an operation is computed by: by rule, by what was measured, or as a test asks for it.

An `Operation` (say "convolution forward") has named `Candidate`s that compute the same, to rounding, and a rule that
picks one from shapes, formats and types alone. A net's layers ask the `Choices` of their context: `RULES` follows the
rules, a `Contest` measures the candidates and keeps the fastest, `Recorded` takes what was measured before, and
`Forced` takes one by name. `record_file` keeps what was measured.
"""
