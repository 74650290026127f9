"""The fault catalogue, one module per kind of fault."""
