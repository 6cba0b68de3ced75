"""How well the house is kept: the shape of the source, its names, its pages, held against an earlier commit."""
