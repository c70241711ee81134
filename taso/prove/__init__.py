"""Proofs that a rewrite rule holds for all sizes, and counterexamples where it does not."""
