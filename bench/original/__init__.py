"""The rules of the original TASO (Jia et al. 2019) in our language, and what our prover and rules make of each."""
