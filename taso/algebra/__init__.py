"""Integer polynomials: the arithmetic of dimensions and indices."""
