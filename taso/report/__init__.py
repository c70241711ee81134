"""How results look: tables and lines of text, made with rich, for a terminal of 80 columns or for a file."""
