"""The first version that this program converts; `schema.py` makes the tables of new databases."""

revision = "0021"
down_revision = None
