"""Schedulers that decide where the tasks of a bag go while it is carried out."""
