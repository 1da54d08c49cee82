"""Converting models between formats: importers make a `Model`, exporters read one, and a proof compares both sides."""
