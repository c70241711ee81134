"""Matching rules against graphs, rewriting, costing and searching."""
