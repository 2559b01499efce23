"""The first version that this program converts; `schema.py` makes the tables of new databases."""

revision = "0020"
down_revision = None
