"""How the report draws: figures as data, axes, colours, and SVG text."""
