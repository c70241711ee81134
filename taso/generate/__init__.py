"""Rules from specifications: enumerate small graphs, find the equal ones, generalise and minimise."""
