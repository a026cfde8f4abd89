"""The tables of Teylo 2021, measured again."""
