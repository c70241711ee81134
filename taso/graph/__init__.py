"""The graph that is searched: immutable, hash-consed, with sizes that may be symbols."""
